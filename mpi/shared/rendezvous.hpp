// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/text/duration.hpp"
#include "mpi/shared/job.hpp"

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

/// A process, and the name space in which its number counts.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t name_space = 0;

  static ProcessId mine();
};

/// The processes of the ranks of `comm` on the host of this rank, by rank; without a number for those of other hosts.
/// Collective.
std::vector<ProcessId> processes_of_host(const Communicator& comm, const std::vector<int>& host_of_rank);

/// Knows which of some processes have ended, zombies included. One that cannot be watched (another container, an old
/// kernel) counts as alive.
class PeerWatch {
 public:
  explicit PeerWatch(const std::vector<ProcessId>& peers);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();

  bool is_dead(int peer) const;

 private:
  std::vector<int> descriptors_;
};

/// The facts that a rank lays open when it arrives at a call.
struct Posting {
  Call call;
  std::uint32_t bucket = 0;  ///< number of the bucket that holds the values; 0 = private memory
  std::uint64_t offset = 0;  ///< bytes from the start of this rank's slot of that bucket
};

struct WaitOptions {
  double timeout_s = 300;
  double grace_s = 0;              ///< more for a peer on the same host that may itself wait for another host
  bool is_oversubscribed = false;  ///< ranks outnumber processors: hand the processor on at once instead of spinning
};

/// The place where the ranks of one host wait for each other, in shared memory.
///
/// Every rank owns a line with two counters that only grow. `arrived` is the number of the last call that it has
/// posted; what it posted, and the values it named, are visible to a rank that has read the counter. `progress` counts
/// the parts of calls that it has worked off; as all ranks do the same calls, equal progress means the same place.
///
/// A wait spins, then yields, then sleeps in the kernel. It ends with CommError when a peer gave up, died, left, or
/// is late; then all ranks' waits end.
class Rendezvous final : private WaitPoint {
 public:
  static constexpr std::uint64_t kPostings = 1024;  ///< number of postings of each rank that stay readable

  /// The shared memory to give to the constructor.
  static std::size_t bytes_for(int ranks);

  /// Collective over `host`.
  /// @param names   what its ranks are called in error texts
  /// @param memory  zeroed, bytes_for(host.size()) bytes, the same on every rank
  Rendezvous(const Communicator& host, std::vector<int> names, std::span<std::byte> memory, const WaitOptions& options);
  ~Rendezvous() override;  ///< notifies the others that this rank has ended

  void arrive(const Posting& posting);
  void advance();  ///< one more part is done
  std::uint64_t progress() const noexcept { return progress_; }

  /// Waits until all ranks have posted call number `call.sequence`.
  void await_arrival(const Call& call);
  /// Waits until all ranks have at least this progress, during `call`.
  void await_progress(std::uint64_t progress, const Call& call);

  /// One of the last kPostings that `rank` has made.
  const Posting& posting(int rank, std::uint64_t sequence) const;

  /// Throws what this rank or a peer gave up for, if one did.
  void throw_if_given_up();
  /// Makes every rank's waits fail, unless they do already.
  /// @param code  of what they throw; in addition to that of communication it is an error that is this rank's
  void notify_peers(const std::string& reason, ExitCode code = ExitCode::communication) noexcept;
  /// The same, and throws.
  [[noreturn]] void give_up(const std::string& reason);

 private:
  struct Line;
  struct Board;
  using Counter = std::atomic<std::uint64_t> Line::*;
  bool is_awaited_by(int world_rank, std::uint32_t peer_thread) override;
  void publish(std::atomic<std::uint64_t>& counter, std::uint64_t value);
  void await(Counter counter, std::uint64_t value, const Call& call);
  void await_patiently(Counter counter, std::uint64_t value, const Call& call, int behind);
  bool has_reached(Counter counter, std::uint64_t value, int& behind) const;
  void sleep_until_changed(Counter counter, std::uint64_t value, int rank);
  void throw_if_hopeless(Counter counter, std::uint64_t value, const Call& call, SteadyClock::time_point start);
  std::string where_is(int rank) const;

  WaitOptions options_;
  std::vector<int> names_;
  std::vector<int> world_ranks_;
  int rank_;
  int size_;
  std::uint64_t arrived_ = 0;  ///< copy of the value in this rank's line
  std::uint64_t progress_ = 0;
  Board* board_;
  std::span<Line> lines_;
  std::span<Posting> postings_;
  std::unique_ptr<PeerWatch> watch_;
};

}  // namespace lockstep::mpi
