// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace lockstep::checkpoints {

/// The right to write to the folder of a run, held by one run at a time: a file LEASE among its checkpoints that names
/// its holder. A thread renews it every 30 s, whatever the run does meanwhile.
///
/// A live holder is never replaced; judge() decides which one has ended.
class Lease {
 public:
  /// Takes the lease; makes the folder if it is missing. Of several processes that try at once, one gets it.
  /// @param patience     how long to wait for a holder on this host to end: a run that was just stopped may still save
  /// @param renew_every  for tests
  /// @throws CheckpointError  another run holds it, and which; or the file cannot be written
  explicit Lease(const std::string& directory, std::chrono::seconds patience = std::chrono::seconds(10),
                 std::chrono::milliseconds renew_every = std::chrono::seconds(30));
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();  ///< gives it back

  /// The holder that it was taken over from, for the log; empty when it was free.
  const std::string& taken_from() const noexcept { return taken_from_; }

  /// Whether another run was found to hold it. Cheap enough for every step.
  bool is_lost() const noexcept { return is_lost_; }
  /// Looks at the file.
  /// @throws CheckpointError  another run holds the lease
  void require();

 private:
  bool try_to_take(bool can_wait);
  void renew() noexcept;
  void keep_renewing(const std::stop_token& stop, std::chrono::milliseconds every);

  std::string directory_;
  std::string path_;
  std::string mine_;  // text of the file
  std::string taken_from_;
  std::atomic<bool> is_lost_ = false;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread renewer_;  // last: it uses what is above
};

/// The process that a file LEASE names.
struct LeaseHolder {
  std::string host;
  std::string process;
  std::string system;   ///< boot of the kernel and name space of processes, in which the number is valid; may be empty
  std::string started;  ///< start of the process, in ticks of its kernel; may be empty
  std::string job;      ///< Slurm job; may be empty
  std::string cluster;  ///< Slurm cluster; may be empty
  long restarts = 0;    ///< how often Slurm has requeued the job

  bool is_named() const;         ///< whether host and process are there: an empty file has no holder
  std::string text() const;      ///< contents of the file
  std::string describe() const;  ///< "process 7 on n1 (Slurm job 41)"
};

/// This process.
LeaseHolder this_holder();

/// Removes the lease of a directory if its holder is this one, of which the caller knows that it has ended.
/// @param holder  text of the holder
void end_lease(const std::string& directory, const std::string& holder);

/// The holder in a lease. A field that is missing is empty.
/// @throws CheckpointError  the file exists but cannot be read
LeaseHolder read_holder(const std::string& path);

struct LeaseVerdict {
  bool is_dead = false;
  bool is_local = false;    ///< the process was looked up on this host
  std::string remedy = {};  ///< advice for the user if the holder is not dead
};

/// Whether a holder has ended. A process that can be looked up decides alone, whatever its job is. Otherwise these
/// have ended: an earlier start of this Slurm job, a job that squeue does not list, and a holder that has not renewed
/// its lease for ten minutes.
/// @param age  time since the lease was renewed, by the clock of its file system; negative = in the future
LeaseVerdict judge(const LeaseHolder& holder, std::chrono::seconds age);

}  // namespace lockstep::checkpoints
