// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// Lets ranks continue when others have died, if the launcher leaves them alive (mpirun --enable-recovery).
///
/// Deaths on this host are seen by the numbers of processes, those on other hosts by what their survivors send. The
/// first ranks of hosts also send each other a sign of life every second, in a ring: a host that has sent none for ten
/// seconds is lost with all of its ranks. While the object lives, every wait of Communicator and Messages ends with
/// CommError when a rank is lost (set_wait_check). A call of MPI that cannot be given up, and that does not return
/// within 5 s after a loss, ends this process with exit code 5; so does a failure of those who are left to find each
/// other. Only one object at a time.
///
/// MPI promises none of this. Open MPI's MPI_Finalize may hang after a death: leave by _exit.
class Survivors {
 public:
  /// Collective over `world`, all ranks of the job.
  /// @param limit           how long those who are left wait for each other after a loss, for example for the end of a
  ///                        computation
  /// @param before_leaving  called before this process is ended, in any thread: a launcher that has lost a host can
  ///                        wait forever for what is left
  Survivors(
      const Communicator& world, std::chrono::duration<double> limit, std::function<void()> before_leaving = [] {});
  Survivors(const Survivors&) = delete;
  Survivors& operator=(const Survivors&) = delete;
  ~Survivors();

  /// The sentence about ranks that were lost since the last call of `shrink`: "rank 2 has died", with the name of its
  /// host if it is not that of this rank; "" = none. The ranks are those of MPI_COMM_WORLD. Thread-safe. Not
  /// collective.
  std::string lost();
  /// Waits up to `limit` for a loss. Not collective.
  bool awaits_loss(std::chrono::milliseconds limit);

  /// A communicator of those who are left, in the order of their ranks. Collective over these; each calls it after a
  /// loss, however it has learned of it.
  Communicator shrink();

 private:
  enum class Fate : char { alive, dead, left_out };

  [[noreturn]] void leave(const std::string& reason) const;
  void look();
  void tell_others();
  void send_to(int rank, int tag, std::span<const char> message) const;
  void await_reports();
  void keep_watch(const std::stop_token& stop);
  void end_hanging_call();
  void exchange_signs_of_life();
  std::vector<int> first_ranks() const;
  std::vector<int> alive() const;

  Communicator news_;  // reports of losses travel here
  int rank_ = 0;
  std::chrono::steady_clock::duration limit_;
  std::function<void()> before_leaving_;
  std::unique_ptr<PeerWatch> watch_;
  std::timed_mutex mutex_;
  std::vector<Fate> fates_;  // indexed by rank of MPI_COMM_WORLD
  std::vector<int> heard_;   // number of reports of each rank, which sends one before each shrink
  int shrinks_ = 0;
  std::vector<int> host_of_rank_;
  std::vector<std::string> host_names_;  // indexed by rank
  int watched_ = -1;                     // the first rank of the host before this one in the ring; -1 = none
  std::chrono::steady_clock::time_point heard_of_watched_;
  std::chrono::steady_clock::time_point sent_sign_;
  std::atomic<bool> is_shrinking_ = false;
  std::jthread guard_;  // last: it uses the members above
};

}  // namespace lockstep::mpi
