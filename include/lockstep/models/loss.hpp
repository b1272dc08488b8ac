// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

// N samples, C classes.
namespace lockstep::models {

/// A loss as a mean over the micro-batch.
/// @param output       the main output of the model
/// @param target       the target of the batch. With train.mix, the targets of training batches are float32 [N, C]:
///                     probabilities of the classes, smoothed by loss.label_smoothing
/// @param is_training  false in evaluations
/// @return             [] scalar
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target, bool is_training)>;

/// A row of the table of losses. A program can append rows to engine::Registry::losses.
struct LossRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `loss`, in addition to the common ones
  /// An empty function = the losses of the model.
  /// @throws ConfigError  the options contradict each other or the task
  std::function<Loss(const Section& loss, const Task& task)> make;
};

/// auto, cross_entropy, bce.
const std::vector<LossRow>& builtin_losses();

/// Creates the loss that `loss.name` selects; empty = the losses of the model.
/// @throws ConfigError  the name is unknown (the message lists the known names); also the errors of the row
Loss make_loss(const Section& loss, const Task& task, const std::vector<LossRow>& rows = builtin_losses());

/// The keys of section `loss`: the common ones and those of every row.
KeySpecs loss_keys(const std::vector<LossRow>& rows = builtin_losses());

/// The mean cross-entropy for targets that are probabilities of classes: the mean over N of -sum target * log p.
/// @param output  [N, C], unnormalized
/// @param target  [N, C], each row with the sum 1
at::Tensor soft_cross_entropy(const at::Tensor& output, const at::Tensor& target);

/// The mean over N and C of the binary cross-entropy.
/// @param output     [N, C], unnormalized
/// @param target     [N, C] in [0, 1], or [N] classes (data::kIgnored = ignored), which become probabilities
/// @param smoothing  of targets that are classes: 1 - s + s / C for the class, s / C for all others
at::Tensor binary_cross_entropy(const at::Tensor& output, const at::Tensor& target, double smoothing = 0);

}  // namespace lockstep::models
