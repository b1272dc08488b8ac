// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "mpi/shared/call.hpp"

namespace lockstep::mpi {

/// A place where a rank waits for others: each Collectives has one or two. All of a process know each other, for two
/// ranks that come to two of them in different orders wait for each other forever: this rank here for its peer, the
/// peer elsewhere for this rank. That is found within a second, without waiting for a time-out. Programs in which
/// several threads use a Collectives each are not mistaken for such.
class WaitPoint {
 public:
  WaitPoint();
  WaitPoint(const WaitPoint&) = delete;
  WaitPoint& operator=(const WaitPoint&) = delete;
  virtual ~WaitPoint();

  /// A number of the calling thread that no other thread of this process has; not 0.
  static std::uint32_t this_thread();

 protected:
  /// Says that this thread uses the place.
  void note_use() noexcept { user_.store(this_thread(), std::memory_order_relaxed); }
  /// Says that nobody uses it any more: after a failure, and first in a destructor.
  void note_end() noexcept { user_.store(0, std::memory_order_relaxed); }

  /// Whether a rank that this one waits for here waits elsewhere for a call that this one has yet to make.
  /// @param peer_thread  the thread that the peer uses this place with; 0 = unknown
  bool is_crossed(int world_rank, std::uint32_t peer_thread) const;

  /// Whether a rank waits here, with that thread, for a call that this one has yet to make. Must not wait.
  virtual bool is_awaited_by(int world_rank, std::uint32_t peer_thread) = 0;

 private:
  std::atomic<std::uint32_t> user_ = 0;
};

/// The sentence about it.
std::string cross_communicator_deadlock(int rank, int peer, const Call& call);

}  // namespace lockstep::mpi
