// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// What a data set asks for. The kind decides the loss, the predictions, the meters and the wording that a run has
/// unless the model or the configuration says otherwise. C is the number of classes.
enum class TaskKind {
  classification,  ///< output [N, C] scores, target [N] classes
  multilabel,      ///< output [N, C] scores, target [N, C] of 0 and 1
  regression,      ///< output and target [N, ...]
  segmentation,    ///< output [N, C, H, W] scores, target [N, H, W] classes
  language,        ///< output [N, T, C] scores, target [N, T] tokens
  custom           ///< whatever the model says: it has losses_of and predictions_of of its own
};

/// What a data set asks of a model: how a sample looks and among how many classes each prediction chooses.
struct Task {
  /// Of one input, without the batch dimension: {1, 28, 28}, or {block} tokens. Models of a user's own may not need it.
  std::vector<std::int64_t> sample_shape = {};
  std::int64_t classes = 0;                 ///< number of classes or labels; for text, of tokens in the vocabulary
  std::int64_t predictions_per_sample = 1;  ///< 1 for a labeled image, `block` for text
  bool is_text = false;                     ///< inputs are int64 token numbers instead of numbers of the model's dtype
  TaskKind kind = TaskKind::classification;
};

}  // namespace lockstep
