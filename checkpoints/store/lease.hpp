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
/// A live holder is never replaced; judge() of lease_holder.hpp decides which one has ended.
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

/// The age of a file by the clock of its file system: that of a file which is written now beside it.
std::chrono::seconds age_by_file_system(const std::string& directory, const std::string& path);

}  // namespace lockstep::checkpoints
