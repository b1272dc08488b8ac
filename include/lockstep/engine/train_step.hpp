// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::engine {

class PerfStats;

/// The current micro-batch for hooks. All tensors are detached from the autograd graph.
struct LastBatch {
  bool is_training = true;              ///< false in evaluations
  const batch::Batch* given = nullptr;  ///< the batch of the data set
  const batch::Batch* batch = nullptr;  ///< the batch of the model: on the device and preprocessed
  batch::Outputs outputs = {};          ///< outputs of the model
  /// Set from on_loss on: [] scalars by name; the first is "loss", which is trained.
  std::vector<std::pair<std::string, at::Tensor>> losses = {};
  double loss_scale = 1;  ///< factor on the gradients from on_backward until the update
  const models::Model* model = nullptr;

  const at::Tensor& output() const { return outputs.main(); }
  /// The predictions of the model (mode "predict"), computed on request.
  models::Predictions predictions() const { return model->predictions_of(outputs, *batch); }
};

using parallel::StepLosses;
using parallel::StepOptions;

/// The short form of a training step: computes the losses of one micro-batch of one rank. It runs the blocks of the
/// model through models::run. Lockstep adds autocast, loss scaling, hooks, backward and update.
/// @param batch  a result of parallel::DistributedDataParallel::prepare
using LossStep = std::function<StepLosses(models::Model& model, const batch::Batch& batch)>;

/// The arguments of a ManualStep: one micro-batch of one rank.
struct StepContext {
  parallel::DistributedDataParallel& wrapper;  ///< wrapper of the model
  optim::BaseOptimWrapper& optimizer;          ///< the optimizer; of several parts, all of them together
  optim::OptimWrapperDict& parts;              ///< the optimizer of each part; without parts, one that is named ""
  const batch::Batch& batch;                   ///< the batch of the data set
  /// The weight of the micro-batch in the average of the step: for models::parse_losses, and of_total() for
  /// OptimWrapper::update_params.
  models::LossWeights weights = {};
  double where = 0;              ///< Progress::where of the step
  bool reads_gradients = false;  ///< whether a hook reads gradients between backward and update
  PerfStats* perf = nullptr;     ///< receives the times of sections; null = not measured
  /// Calls the hooks. The step must detach the tensors of LastBatch.
  std::function<void(StepEvent, const LastBatch&)> notify;
  /// Whether the result is completed one step later, by parallel::StepResult::finish. The step passes it to
  /// parallel::DistributedDataParallel::read_losses. See StepRow::reads_late.
  bool reads_late = false;
};

/// The explicit form of a training step, for several optimizers or several backward passes: forward, losses, backward
/// and, when the optimizer completes its step, the update of one micro-batch. It updates only through update_params of
/// `optimizer` or, in turn, of each of the `parts` (see StepRow::parts), and notifies the hooks of every StepEvent, in
/// order; of backward and update only when the step is completed. Collective like
/// parallel::DistributedDataParallel::train_step.
using ManualStep = std::function<parallel::StepResult(StepContext&)>;

/// StepOptions are options of parallel::DistributedDataParallel::train_step, which is then the step.
using TrainStep = std::variant<ManualStep, LossStep, StepOptions>;

/// A row of the table of steps; `train.step_kind` selects one. A program can append rows to Registry::steps.
struct StepRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of section `train`
  /// @throws ConfigError  the options contradict each other
  std::function<TrainStep(const Section& train)> make;
  /// The parts of section `optim` that the step updates in turn, such as generator and discriminator. The configuration
  /// must define exactly these. Empty = the step updates StepContext::optimizer, whatever the parts.
  std::vector<std::string> parts = {};
  bool measures_sections = false;  ///< also if log.sections is false; steps are then not captured
  /// Whether a ManualStep observes StepContext::reads_late, and the report of an update may be pending (see
  /// optim::OptimWrapper::set_late_reports). On a GPU, the host then queues a step before it knows the loss of the
  /// previous one. Other steps always do.
  bool reads_late = false;
};

/// model, simple, amp, standard.
const std::vector<StepRow>& builtin_steps();

}  // namespace lockstep::engine
