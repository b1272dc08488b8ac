// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "fake_gpu/nccl/call.hpp"
#include "fake_gpu/nccl/meeting.hpp"

namespace lockstep::fake_gpu::nccl {

/// One rank of a communicator, as queued work sees it: that outlives the communicator which queued it.
class Member {
 public:
  Member(const Place& place, Position position) : meeting_(place, position) {}

  Position position() const { return meeting_.position(); }
  NcclMeeting& meeting() { return meeting_; }

  /// Runs collectives on the thread of a stream, one after the other. Returns early once aborted.
  void run(const std::vector<NcclOperation>& operations);

  /// Ends all waits, now and later.
  void abort() { is_aborted_ = true; }
  bool is_aborted() const { return is_aborted_; }
  const std::atomic<bool>& abort_flag() const { return is_aborted_; }

  /// Whether nothing runs and no graph can run anything.
  bool is_idle() const { return running_ == 0 && graphs_ == 0; }
  /// Is held by a graph, and by what is made of it, as long as that can be launched.
  static std::shared_ptr<const void> hold_for_graph(std::shared_ptr<Member> member);

  /// The error that a collective met; ncclSuccess while there is none.
  ncclResult_t error() const { return error_; }

 private:
  void run_one(const NcclOperation& operation);
  /// Whether a collective may begin: not once aborted, and not before the faults that were planned for it.
  bool survives_faults();
  void lay_down(const NcclOperation& operation, const std::byte* send, std::size_t first, std::size_t count);
  void require_same_call(const NcclOperation& operation);
  void take_up(const NcclOperation& operation, std::byte* recv, std::size_t first, std::size_t count);
  void take_reduced(const NcclCall& call, std::byte* target, std::size_t first, std::size_t count);
  void sleep(double seconds) const;

  NcclMeeting meeting_;
  std::mutex run_mutex_;  ///< NCCL runs one collective of a communicator at a time
  std::atomic<bool> is_aborted_ = false;
  std::atomic<ncclResult_t> error_ = ncclSuccess;
  std::atomic<int> running_ = 0;
  std::atomic<int> graphs_ = 0;
};

}  // namespace lockstep::fake_gpu::nccl
