// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/local_copies.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "engine/saving/progress_lines.hpp"

namespace lockstep::engine {

namespace {

namespace fs = std::filesystem;

constexpr int kTriesAtTheEnd = 3;
constexpr std::size_t kDigestDigits = 8;
constexpr std::chrono::seconds kFirstPause{1};
constexpr int kMaxPauseDoublings = 6;

/// Whether the checkpoint can be read; otherwise it is renamed.
bool is_intact(const std::string& checkpoint) {
  try {
    checkpoints::verify(checkpoint);
    return true;
  } catch (const CheckpointError& error) {
    log::warning(fmt::format("the local checkpoint is damaged and is renamed to {}: {}",
                             checkpoints::quarantine(checkpoint), error.what()));
    return false;
  }
}

}  // namespace

std::string local_folder(const std::string& local_dir, const std::string& directory) {
  if (local_dir.empty()) return "";
  const std::string path = fs::weakly_canonical(fs::absolute(directory)).string();
  const std::string digest = checkpoints::array_digest(std::as_bytes(std::span(path)));
  return local_dir + "/" + fs::path(path).parent_path().filename().string() + "-" + digest.substr(0, kDigestDigits);
}

LocalCopies::LocalCopies(std::string local, std::string directory)
    : local_(std::move(local)), directory_(std::move(directory)) {
  std::error_code error;
  fs::create_directories(local_, error);
  if (error) throw CheckpointError(local_, "ckpt.local_dir: the folder cannot be created: " + error.message());
  checkpoints::remove_stale_files(local_);
  copy_left_behind();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void LocalCopies::copy_left_behind() {
  for (const std::int64_t step : checkpoints::list(local_)) {
    const std::string checkpoint = checkpoints::checkpoint_of(local_, step);
    if (!is_intact(checkpoint)) continue;
    log::info("copying " + checkpoint + ", which an interrupted run left on the local disk");
    try {
      copy({checkpoint, {}}, {});
    } catch (const CheckpointError& error) {
      const std::vector<std::int64_t> there = checkpoints::list(directory_);
      if (!std::binary_search(there.begin(), there.end(), step)) throw;
      log::warning(fmt::format("the local checkpoint is not used and is renamed to {}: {}",
                               checkpoints::set_aside(checkpoint), error.what()));
    }
  }
}

void LocalCopies::copy(const CopyTask& task, const std::stop_token& stop) {
  const TransferLines progress("copying " + fs::path(task.checkpoint).filename().string(), bytes_in(task.checkpoint),
                               checkpoints::bytes_written);
  const std::string copied = checkpoints::copy(task.checkpoint, directory_, stop);
  if (task.then) task.then(copied);
  checkpoints::remove(task.checkpoint);
}

void LocalCopies::add(std::string checkpoint, std::function<void(const std::string&)> then) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(checkpoint), std::move(then)});
  }
  changed_.notify_all();
}

void LocalCopies::run(const std::stop_token& stop) {
  while (true) {
    CopyTask task;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
      task = tasks_.front();
    }
    const auto began = SteadyClock::now();
    std::string failure;
    try {
      copy(task, stop);
    } catch (const std::exception& error) {
      if (stop.stop_requested()) return;
      failure = message_of(error);
    }
    note(task, seconds_since(began), failure);
    if (failure.empty()) continue;
    std::unique_lock lock(mutex_);
    const auto pause = kFirstPause * (1 << std::min(failures_ - 1, kMaxPauseDoublings));
    changed_.wait_for(lock, stop, pause, [this] { return is_waited_for_ && failures_ < kTriesAtTheEnd; });
    if (stop.stop_requested()) return;
  }
}

void LocalCopies::note(const CopyTask& task, double seconds, const std::string& failure) {
  if (failure.empty()) {
    log::info(fmt::format("copied {} to {} in {:.3f} s", task.checkpoint, directory_, seconds));
  } else {
    log::error(
        fmt::format("{} could not be copied to {} and will be tried again: {}", task.checkpoint, directory_, failure));
  }
  {
    const std::lock_guard lock(mutex_);
    if (failure.empty()) {
      tasks_.pop_front();
      failures_ = 0;
      longest_seconds_ = std::max(longest_seconds_, seconds);
    } else {
      ++failures_;
      last_failure_ = failure;
    }
  }
  changed_.notify_all();
}

void LocalCopies::finish() {
  std::unique_lock lock(mutex_);
  is_waited_for_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return tasks_.empty() || failures_ >= kTriesAtTheEnd; });
  is_waited_for_ = false;
  if (tasks_.empty()) return;
  throw CheckpointError(tasks_.front().checkpoint,
                        "could not be copied to " + directory_ +
                            "; it stays on the local disk, and --resume=auto on this host copies it: " + last_failure_);
}

int LocalCopies::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

std::string LocalCopies::last_failure() const {
  const std::lock_guard lock(mutex_);
  return last_failure_;
}

double LocalCopies::longest_seconds() const {
  const std::lock_guard lock(mutex_);
  return longest_seconds_;
}

}  // namespace lockstep::engine
