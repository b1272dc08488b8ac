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

/// How the fields of a task are normalized around a model, (value - shift) / scale for each channel, and how its
/// outputs become its next inputs. The values of a batch stay in their units.
struct FieldScaling {
  /// Rates r of channels that become 1 - exp(-r * value) before everything else; 0 for all others. Empty = none.
  std::vector<double> input_rates = {};
  std::vector<double> input_shift = {};  ///< one for each input channel; empty = inputs are not normalized
  std::vector<double> input_scale = {};
  std::vector<double> target_shift = {};  ///< one for each target channel; empty = targets are not normalized
  std::vector<double> target_scale = {};
  bool fills_gaps = false;  ///< gaps (NaN) of inputs become 0 after normalization

  std::int64_t input_steps = 1;     ///< number of time steps of an input, which come first among its channels
  std::int64_t input_channels = 0;  ///< of each of these steps
  std::int64_t target_steps = 1;    ///< number of time steps of a target
  /// For each channel of a step of the target, the channel of a step of the input that has the same values. Empty =
  /// targets are no inputs.
  std::vector<std::int64_t> fed_back = {};
  bool adds_newest = false;  ///< the model computes differences to the newest step; shift and scale are those of them
  bool adds_steps = false;   ///< those of later steps of a target are to the step before

  bool is_used() const {
    return fills_gaps || !input_rates.empty() || !input_shift.empty() || !target_shift.empty() || !fed_back.empty();
  }
};

/// The fields of a task: arrays [channels, space...] with 1 to 3 axes of space.
struct FieldTask {
  std::vector<std::string> channels = {};             ///< names of the target channels; empty = the task has no fields
  std::vector<std::string> units = {};                ///< units of the target channels; "" = unknown
  std::vector<std::string> axes = {};                 ///< names of the axes of space
  std::vector<std::vector<double>> coordinates = {};  ///< the points along each axis; empty = unknown
  std::vector<std::string> axis_units = {};           ///< units of the coordinates; "" = unknown
  std::vector<std::string> inputs = {};               ///< names of the input channels
  FieldScaling scaling = {};
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
  /// Whether batches have the value "weight" [N], the weight of each sample in the loss.
  bool has_weights = false;
  /// Fields of a regression: the shape of a target is {fields.channels.size(), space...}.
  FieldTask fields = {};
};

}  // namespace lockstep
