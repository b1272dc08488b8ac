// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The kind of a task. It selects the default loss, predictions, meters and terms of a run; the model and the
/// configuration can override them. C is the number of classes.
enum class TaskKind {
  classification,  ///< output [N, C] scores, target [N] classes
  multilabel,      ///< output [N, C] scores, target [N, C] of 0 and 1
  regression,      ///< output and target [N, ...]
  segmentation,    ///< output [N, C, H, W] scores, target [N, H, W] classes
  language,        ///< output [N, T, C] scores, target [N, T] tokens
  custom           ///< defined by the model, which overrides losses_of and predictions_of
};

/// Mean and standard deviation of each element of a sample, over all samples of a data set.
struct Moments {
  std::vector<double> mean = {};
  std::vector<double> deviation = {};  ///< 1 for elements that are equal in all samples
};

/// The fields of a task: arrays [channels, space...] with 1 to 3 axes of space.
struct FieldTask {
  std::vector<std::string> channels = {};             ///< names of the target channels; empty = the task has no fields
  std::vector<std::string> units = {};                ///< units of the target channels; "" = unknown
  std::vector<std::string> axes = {};                 ///< names of the axes of space
  std::vector<std::vector<double>> coordinates = {};  ///< the points along each axis; empty = unknown
};

/// The task that a data set defines for a model: the shape of a sample and the number of classes.
struct Task {
  /// Shape of the first input without the batch dimension: {1, 28, 28}, or {block} tokens. Your own models can ignore
  /// it, and can have further inputs.
  std::vector<std::int64_t> sample_shape = {};
  /// Number of classes or labels; for text, the size of the vocabulary. Of a custom task, only your own model and the
  /// meters read it.
  std::int64_t classes = 0;
  std::int64_t predictions_per_sample = 1;  ///< 1 for a labeled image, `block` for text
  bool is_text = false;                     ///< inputs are int64 token numbers instead of numbers of the model's dtype
  TaskKind kind = TaskKind::classification;
  std::vector<std::string> class_names = {};  ///< the name of each class; empty if the classes have none
  /// The names by which the data identify the classes, such as those of folders, if class_names are others
  /// (data.class_names); empty = class_names.
  std::vector<std::string> class_ids = {};
  /// Statistics of the inputs and, for regression, of the targets of the training data, for models that standardize
  /// them. Empty = they are computed before the training if `model.standardize` is true.
  Moments input_moments = {};
  Moments target_moments = {};
  /// Fields of a regression: the shape of a target is {fields.channels.size(), space...}.
  FieldTask fields = {};
};

}  // namespace lockstep
