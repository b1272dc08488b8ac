// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::models {

/// The classes that integer targets can state.
struct ClassRange {
  std::int64_t classes = 0;     ///< targets are in [0, classes); 0 = not known, or targets are no classes
  std::int64_t ignored = -100;  ///< is accepted in addition, as -100 always is
};

/// A loss that knows the divisor of its mean. A row of the table of losses can return it as its Loss. Micro-batches,
/// lanes and ranks then weigh as much as they count, so that a step trains the mean over its global batch.
struct CountedLoss {
  Loss value;
  /// The number or sum of weights by which the mean of this target is divided; >= 0.
  std::function<double(const at::Tensor& target)> count;
  /// In training in place of `value`, if the loss depends on more than the target; empty = it does not.
  /// @param batch  the preprocessed batch
  std::function<at::Tensor(const at::Tensor& output, const batch::Batch& batch)> of_batch = {};
  ClassRange targets = {};  ///< integer targets that `value` accepts

  at::Tensor operator()(const at::Tensor& output, const at::Tensor& target, bool is_training) const {
    return value(output, target, is_training);
  }
};

/// The counts of a batch: those of the CountedLoss of Model::set_loss under the name "loss", or Model::counts.
std::vector<std::pair<std::string, double>> counts_of(const Model& model, const batch::Batch& batch);

/// Whether default losses, if the model has them, count targets: it has no other loss, and targets can be ignored.
bool counts_by_task(const Model& model);
/// The integer targets that the losses of the model accept.
/// @param task  of the data
ClassRange target_classes(const Model& model, const Task& task);
/// The targets of the batch that count in the default losses, and all of its targets; 0 and 0 = it has no such targets.
struct TargetCount {
  double counted = 0;
  double all = 0;
};
TargetCount count_targets(const Model& model, const batch::Batch& batch);

}  // namespace lockstep::models
