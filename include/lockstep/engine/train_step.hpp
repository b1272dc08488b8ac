// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/perf_timer.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// What hooks see of the micro_batch at hand. Nothing here has a history: to look at it keeps no graph alive.
struct LastBatch {
  bool is_training = true;  ///< false: of an evaluation
  at::Tensor input = {};    ///< as the data set gave it
  at::Tensor target = {};   ///< on the model's device
  at::Tensor output = {};   ///< of the model
  /// From on_loss on: [] scalars by name, "loss" first, which is what is trained.
  std::vector<std::pair<std::string, at::Tensor>> losses = {};
  double loss_scale = 1;  ///< what gradients are multiplied by until the update
  const models::Model* model = nullptr;

  /// What the model says in its mode "predict"; made when asked for.
  models::Predictions predictions() const { return model->predict(output); }
};

/// What a train step works on: one micro_batch of one rank.
struct StepContext {
  parallel::DistributedDataParallel& wrapper;  ///< around the model
  optim::OptimWrapper& optimizer;
  const data::Batch& batch;
  double weight = 1;             ///< its share of the step's average on this rank, for OptimWrapper::update_params
  double where = 0;              ///< Progress::where of the step
  bool reads_gradients = false;  ///< a hook does, between backward and update
  PerfStats* perf = nullptr;     ///< takes the times of sections; null: they are not measured
  /// Calls the hooks; what has no history yet is to be detached by the step.
  std::function<void(StepEvent, const LastBatch&)> notify;
};

/// Forward, losses, backward and, when the optimizer completes its step, the update, of one micro_batch. Updates
/// through OptimWrapper::update_params and nothing else, and notifies the hooks of every StepEvent, in order; of
/// backward and update only where the step is completed. Collective as parallel::DistributedDataParallel::train_step
/// is.
using TrainStep = std::function<parallel::StepResult(StepContext&)>;

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
