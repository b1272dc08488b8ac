// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/engine/nonfinite.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <sstream>

namespace lockstep::engine {

namespace {

// What is wrong with so many steps in a row is not the data of one.
constexpr std::int64_t kMostInARow = 64;

constexpr const char* kAdvice = "; the last checkpoint is kept: lower optim.lr, or clip with train.clip_grad=norm:1.0";

}  // namespace

NonfiniteHook::NonfiniteHook(const Section& train)
    : policy_(train.text("nonfinite")), most_roll_backs_(train.integer("max_roll_backs")) {}

NonfiniteHook::Verdict NonfiniteHook::judge(std::int64_t step, const std::string& what, bool is_skipped) {
  if (policy_ == "stop")
    throw_agreed(ExitCode::numeric, what + " is not finite at step " + std::to_string(step) + kAdvice);
  if (step == last_step_ + 1) {
    ++in_a_row_;
  } else {
    in_a_row_ = 1;
  }
  last_step_ = step;
  if (in_a_row_ > kMostInARow) {
    throw_agreed(ExitCode::numeric, what + " was not finite in " + std::to_string(kMostInARow) +
                                        " steps in a row, up to step " + std::to_string(step) + kAdvice);
  }
  const bool is_new = std::find(rolled_back_.begin(), rolled_back_.end(), step) == rolled_back_.end();
  if (policy_ == "roll_back" && is_new) {
    if (static_cast<std::int64_t>(rolled_back_.size()) == most_roll_backs_) {
      throw_agreed(ExitCode::numeric, what + " is not finite at step " + std::to_string(step) +
                                          ", and the run went back " + std::to_string(most_roll_backs_) +
                                          " times already (train.max_roll_backs)" + kAdvice);
    }
    rolled_back_.push_back(step);
    return Verdict::roll_back;
  }
  ++skipped_;
  log::warning("step " + std::to_string(step) + (is_skipped ? " is skipped: " : ": ") + what + " is not finite (" +
               std::to_string(skipped_) + " such steps so far)");
  return Verdict::go_on;
}

void NonfiniteHook::save_state(checkpoints::Archive& archive, const std::string& group) const {
  archive.set(group, "skipped", skipped_);
  std::string steps;
  for (const std::int64_t step : rolled_back_) steps += (steps.empty() ? "" : " ") + std::to_string(step);
  archive.set(group, "rolled_back", steps);
}

void NonfiniteHook::load_state(const checkpoints::Archive& archive, const std::string& group) {
  skipped_ = std::max(skipped_, archive.integer(group, "skipped"));
  std::istringstream steps(archive.text(group, "rolled_back"));
  for (std::int64_t step = 0; steps >> step;) {
    if (std::find(rolled_back_.begin(), rolled_back_.end(), step) == rolled_back_.end()) rolled_back_.push_back(step);
  }
}

}  // namespace lockstep::engine
