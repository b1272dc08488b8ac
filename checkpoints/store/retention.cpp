// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/retention.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <filesystem>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/folder.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

namespace fs = std::filesystem;

/// Why it must not be counted; empty for a finished checkpoint. Looks at envelopes, not at arrays.
std::string fault_of(const std::string& checkpoint) {
  try {
    for (const std::string& file : state_files(checkpoint)) read_seal(file);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

bool has(const std::vector<std::int64_t>& steps, std::int64_t step) {
  return std::ranges::find(steps, step) != steps.end();
}

std::string reason_to_keep(const std::string& checkpoint, std::int64_t step, std::int64_t newer,
                           const RetentionRule& rule) {
  const std::int64_t keep_last = std::max<std::int64_t>(rule.keep_last, 1);
  if (newer < keep_last) {
    return keep_last == 1 ? "it is the newest" : "it is one of the " + std::to_string(keep_last) + " newest";
  }
  if (exists(checkpoint + ".pin")) return "it is pinned";
  if (rule.keep_every > 0 && step % rule.keep_every == 0) {
    return "its step is a multiple of " + std::to_string(rule.keep_every);
  }
  if (rule.keep_age_hours > 0 && seconds_since_change(checkpoint) < 3600 * rule.keep_age_hours) {
    return "it is younger than " + number_text(rule.keep_age_hours, 6) + " hours";
  }
  if (has(rule.best_steps, step)) return rule.best_steps.size() == 1 ? "it is the best" : "it is one of the best";
  if (rule.origin_step == step && newer < 2) return "the run was resumed from it, and fewer than two newer ones exist";
  return has(rule.keep_steps, step) ? "its step is listed" : "";
}

}  // namespace

std::vector<RetentionDecision> plan_retention(const std::string& directory, const RetentionRule& rule) {
  std::vector<std::int64_t> steps = list(directory);
  std::vector<RetentionDecision> verdicts;
  std::int64_t newer = 0;  // finished ones
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    RetentionDecision verdict{.step = *step, .path = checkpoint_of(directory, *step)};
    if (const std::string fault = fault_of(verdict.path); !fault.empty()) {
      verdict.is_finished = false;
      verdict.reason = "it is not a complete checkpoint and is kept: " + fault;
    } else {
      verdict.reason = reason_to_keep(verdict.path, *step, newer++, rule);
      verdict.is_kept = !verdict.reason.empty();
      if (!verdict.is_kept) verdict.reason = "no rule keeps it";
    }
    verdicts.push_back(std::move(verdict));
  }
  std::ranges::reverse(verdicts);
  return verdicts;
}

void retain(const std::string& directory, const RetentionRule& rule) {
  for (const RetentionDecision& verdict : plan_retention(directory, rule)) {
    if (!verdict.is_kept) discard(directory, fs::path(verdict.path).filename().string());
  }
  remove_stale_files(directory);
}

}  // namespace lockstep::checkpoints
