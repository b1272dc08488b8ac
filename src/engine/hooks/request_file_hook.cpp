// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "engine/hooks/hooks.hpp"
#include "engine/saving/saves.hpp"

namespace lockstep::engine {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{200};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

void remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) log::warning(path + " cannot be removed: " + error.message());
}

class RequestFileHook : public Hook {
 public:
  explicit RequestFileHook(const std::string& directory)
      : Hook(HookReads::nothing()), stop_file_(directory + "/STOP"), save_file_(directory + "/SAVE") {}

  void before_train(RunView& run) override {
    if (!run.world.is_root()) return;
    for (const std::string& file : {stop_file_, save_file_}) {
      if (!exists(file)) continue;
      log::warning(file + " existed before the start: it was removed and ignored");
      remove(file);
    }
  }

  void before_agreement(RunView& run) override {
    const auto now = Clock::now();
    if (!run.world.is_root() || now - looked_at_ < kLookInterval) return;
    looked_at_ = now;
    look_for_stop(run);
    look_for_save(run);
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;  // else all is saved now
    if (!run.world.is_root()) return;
    for (const std::string& file : {stop_file_, save_file_}) {
      if (exists(file)) remove(file);
    }
  }

 private:
  void look_for_stop(RunView& run) const {
    if (!exists(stop_file_)) return;
    log::info("found " + stop_file_ + ": saving a checkpoint and ending the run");
    run.requests.end();
  }

  void look_for_save(RunView& run) {
    if (asked_at_step_ >= 0) {
      if (run.saves.last_step < asked_at_step_) return;
      remove(save_file_);
      asked_at_step_ = -1;
    } else if (exists(save_file_)) {
      log::info("found " + save_file_ + ": saving");
      run.requests.save();
      asked_at_step_ = run.progress.step + 1;
    }
  }

  std::string stop_file_;
  std::string save_file_;
  Clock::time_point looked_at_;
  std::int64_t asked_at_step_ = -1;  ///< step whose checkpoint SAVE requested; -1 = no request is pending
};

}  // namespace

PrioritizedHook request_file_hook(std::string run_directory) {
  return {Priority::very_low, std::make_unique<RequestFileHook>(run_directory)};
}

}  // namespace lockstep::engine
