// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// N samples, C classes.
namespace lockstep::models {

/// The classes that integer targets can state.
struct ClassRange {
  std::int64_t classes = 0;     ///< targets are in [0, classes); 0 = unknown, or the targets are not classes
  std::int64_t ignored = -100;  ///< also accepted as a target, as -100 always is
};

/// A loss, as a mean over the micro-batch. Not collective: each rank computes it for its own samples.
struct Loss {
  /// Computes the mean, a scalar [].
  /// @param outputs      all outputs of the model
  /// @param batch        the preprocessed batch on the device of the model, with its targets and all other values. With
  ///                     train.mix, the targets of training batches are float32 [N, C]: probabilities of the classes,
  ///                     smoothed by loss.label_smoothing
  /// @param is_training  false in evaluations
  /// @throws any exception, such as ConfigError of Outputs::tensor for an unknown name: the run ends on all ranks
  std::function<at::Tensor(const batch::Outputs& outputs, const batch::Batch& batch, bool is_training)> value = {};
  /// The number of items, or the sum of their weights, by which the mean over this batch is divided; >= 0.
  /// Micro-batches, lanes and ranks then weigh as much as they count, so that a step trains the mean over its global
  /// batch. Empty = the number of samples. A micro-batch that counts 0 gets the factor 0, so its gradients must be
  /// finite: divide by `sum.clamp_min(1e-12)`.
  /// @param batch  the batch of the data set, before it is preprocessed
  std::function<double(const batch::Batch& batch)> count = {};
  ClassRange targets = {};  ///< integer targets that `value` accepts

  explicit operator bool() const noexcept { return bool(value); }
};

/// The value of a loss of the main output and the first target: [N, ...] both.
using TargetLoss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target, bool is_training)>;
/// A loss that reads only these two.
/// @param count  see Loss::count
Loss loss_of_target(TargetLoss value, std::function<double(const at::Tensor& target)> count = {},
                    ClassRange targets = {});

/// A row of the table of losses. A program can append rows to engine::Registry::losses.
struct LossRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of section `loss`, in addition to the common ones
  /// Creates the loss; it must have a `value`. Only the built-in row `auto` returns none: the losses of the model.
  /// @throws ConfigError  the options contradict each other or the task
  std::function<Loss(const Section& loss, const Task& task)> make;
  /// Whether the loss weighs samples by the batch value "weight" [N], see Task::has_weights. Others are refused then.
  bool weighs_samples = false;
};

/// The losses of Lockstep, which `trainer --help=loss` lists; the first is `auto`.
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
