// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::engine {

/// The folder of a run on the local disk: `<local_dir>/<name of the run>-<digest of the path of its checkpoints>`.
/// Empty if `local_dir` is empty.
std::string local_folder(const std::string& local_dir, const std::string& directory);

/// Copies checkpoints from the local disk of rank 0 to the run's folder while training continues, in the order in
/// which they were saved, on a thread of its own. A checkpoint is deleted from the local disk when it has been copied.
/// A copy that fails is repeated.
class LocalCopies {
 public:
  /// Copies the checkpoints that an interrupted run left on the local disk before it returns.
  /// @throws CheckpointError  a folder cannot be written
  LocalCopies(std::string local, std::string directory);
  /// Abandons what has not been copied: it stays on the local disk, and the next start copies it.
  ~LocalCopies() = default;

  const std::string& local() const noexcept { return local_; }
  /// Copies a checkpoint that has been committed to the local disk.
  /// @param then  called with the path of the copy, on the thread of the copies; an exception counts as a failed copy
  void add(std::string checkpoint, std::function<void(const std::string& copy)> then);
  /// Waits until everything has been copied.
  /// @throws CheckpointError  three attempts in a row failed
  void finish();

  int failures() const;  ///< failed copies in a row
  std::string last_failure() const;
  double longest_seconds() const;  ///< longest duration of one copy; 0 before the first

 private:
  struct CopyTask {
    std::string checkpoint;
    std::function<void(const std::string&)> then;
  };

  void copy_left_behind();
  void run(const std::stop_token& stop);
  void copy(const CopyTask& task, const std::stop_token& stop);
  void note(const CopyTask& task, double seconds, const std::string& failure);

  std::string local_;
  std::string directory_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<CopyTask> tasks_;  // the first one is being copied
  bool is_waited_for_ = false;
  int failures_ = 0;
  std::string last_failure_;
  double longest_seconds_ = 0;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace lockstep::engine
