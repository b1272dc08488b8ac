// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/batch/outputs.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/perf_timer.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::engine {

/// What hooks see of the micro_batch at hand. Nothing here has a history: to look at it keeps no graph alive.
struct LastBatch {
  bool is_training = true;              ///< false = of an evaluation
  const batch::Batch* given = nullptr;  ///< as the data set gave it
  const batch::Batch* batch = nullptr;  ///< as the model received it: on its device and preprocessed
  batch::Outputs outputs = {};          ///< of the model
  /// From on_loss on: [] scalars by name, "loss" first, which is what is trained.
  std::vector<std::pair<std::string, at::Tensor>> losses = {};
  double loss_scale = 1;  ///< what gradients are multiplied by until the update
  const models::Model* model = nullptr;

  const at::Tensor& output() const { return outputs.main(); }
  /// What the model says in its mode "predict"; made when asked for.
  models::Predictions predictions() const { return model->predictions_of(outputs, *batch); }
};

/// What a step on losses gives: the losses that are trained and reported, and what hooks and meters are to see.
struct StepLosses {
  models::LossMap losses;
  batch::Outputs outputs = {};
};

/// A train step in its short form: what is trained for one micro_batch of one rank. It runs the model's blocks through
/// models::run. Autocast, loss scaling, hooks, backward and update surround it.
/// @param batch  as parallel::DistributedDataParallel::prepare left it
using LossStep = std::function<StepLosses(models::Model& model, const batch::Batch& batch)>;

/// What a manual step works on: one micro_batch of one rank.
struct StepContext {
  parallel::DistributedDataParallel& wrapper;  ///< around the model
  optim::OptimWrapper& optimizer;
  const batch::Batch& batch;  ///< as the data set gave it
  /// Its share of the step's average on this rank: for models::parse_losses, and of_total() for
  /// OptimWrapper::update_params.
  models::LossWeights weights = {};
  double where = 0;              ///< Progress::where of the step
  bool reads_gradients = false;  ///< a hook does, between backward and update
  PerfStats* perf = nullptr;     ///< takes the times of sections; null = they are not measured
  /// Calls the hooks; what has no history yet is to be detached by the step.
  std::function<void(StepEvent, const LastBatch&)> notify;
};

/// A train step in its explicit form, for several optimizers or several backwards: forward, losses, backward and, when
/// the optimizer completes its step, the update, of one micro_batch. Updates through OptimWrapper::update_params and
/// nothing else, and notifies the hooks of every StepEvent, in order; of backward and update only where the step is
/// completed. Collective as parallel::DistributedDataParallel::train_step is.
using ManualStep = std::function<parallel::StepResult(StepContext&)>;

using TrainStep = std::variant<ManualStep, LossStep>;

/// A row of the table of steps, of which `train.step` takes one. A user's program adds rows.
struct StepRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `train`
  /// @throws ConfigError  options that do not fit it
  std::function<TrainStep(const Section& train)> make;
  bool measures_sections = false;  ///< with log.sections=false, too
};

/// model, simple, amp, standard.
const std::vector<StepRow>& builtin_steps();

}  // namespace lockstep::engine
