// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::checkpoints {

/// Which checkpoints stay. A checkpoint is also kept while a file of its name with the suffix ".pin" is next to it.
struct RetentionRule {
  std::int64_t keep_last = 3;                 ///< newest finished ones; at least 1
  std::int64_t keep_every = 0;                ///< steps that are a multiple of this stay forever; 0 = none
  double keep_age_hours = 0;                  ///< younger ones stay; 0 = none
  std::vector<std::int64_t> best_steps = {};  ///< those with the best evaluations
  std::vector<std::int64_t> keep_steps = {};  ///< others that stay
  /// The one that a run continued from stays until there are two newer ones.
  std::optional<std::int64_t> origin_step = {};
};

struct RetentionDecision {
  std::int64_t step = 0;
  std::string path;
  bool is_kept = true;
  bool is_finished = true;  ///< else it can neither be counted nor trusted
  std::string reason = {};  ///< "it is one of the 3 newest"
};

/// The deletions of retain(), by ascending step. An unfinished or unreadable checkpoint neither counts nor goes.
/// @throws CheckpointError  `directory` cannot be listed
std::vector<RetentionDecision> plan_retention(const std::string& directory, const RetentionRule& rule);

/// Deletes what `rule` does not keep, and temporaries of dead writers. A victim is renamed first, so that nobody takes
/// half of it for a checkpoint.
/// @throws CheckpointError  something cannot be deleted
void retain(const std::string& directory, const RetentionRule& rule);

}  // namespace lockstep::checkpoints
