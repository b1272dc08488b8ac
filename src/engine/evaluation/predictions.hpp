// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/evaluation/rollout_ends.hpp"

namespace lockstep::engine {

/// The values that a model predicts for the samples of a batch, on the CPU. Which tensors are defined depends on the
/// kind of the task.
struct BatchPredictions {
  std::vector<std::int64_t> indices;  ///< indices of the samples in the data set
  at::Tensor probabilities = {};      ///< [N, C] double: softmax of classes, or sigmoid of labels
  at::Tensor values = {};             ///< [N, ...] of a regression
  at::Tensor masks = {};              ///< [N, H, W] int64 classes of pixels
  at::Tensor log_probabilities = {};  ///< [N] double: mean over the tokens of a sample that count
  at::Tensor token_counts = {};       ///< [N] int64: these tokens
  at::Tensor target = {};             ///< undefined where the samples have none
  batch::Outputs others = {};         ///< other predictions of the model, see models::Model::predictions_of

  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
  at::Tensor target_of(std::int64_t i) const { return target.defined() ? target[i] : at::Tensor(); }
};

/// The name of a class, or its number if it has none.
std::string class_name(const std::vector<std::string>& names, std::int64_t c);

/// Runs the model on a batch, without gradients.
/// @param task  of the model
/// @param ends  counts the rollouts that are not finite; their values are NaN from that step on. Null = there are no
///              rollouts
/// @throws DataError     a prediction has no row for each sample
/// @throws NumericError  an output is not finite; the message states the sample
/// Collective if the forward is. The model should be in evaluation mode.
BatchPredictions predict_batch(parallel::DistributedDataParallel& wrapper, const batch::Batch& given, const Task& task,
                               const data::Dataset& dataset, RolloutEnds* ends = nullptr);

/// The pooled features of the samples: the mean over all positions of the input of the head of the model.
/// @return  [N, E] float32, on the CPU
/// @throws ConfigError  the model does not name its head, see models::Model::anatomy, or does not run it as a block
at::Tensor features_of_batch(parallel::DistributedDataParallel& wrapper, const batch::Batch& given);

}  // namespace lockstep::engine
