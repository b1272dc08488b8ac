// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <algorithm>

#include "core/text/parameter_names.hpp"
#include "engine/setup/finetune.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

/// The set that is frozen follows from the model alone, so there is nothing to save.
class FrozenBatchNormHook : public Hook {
 public:
  FrozenBatchNormHook() : Hook(HookReads::nothing()) {}

  void before_train(RunView& run) override {
    frozen_.clear();
    for (const auto& module : run.wrapper.model().modules()) {
      const auto layer = std::dynamic_pointer_cast<models::BatchNorm>(module);
      if (!layer) continue;
      const std::vector<at::Tensor> parameters = layer->parameters();
      const bool is_trained = std::ranges::any_of(parameters, &at::Tensor::requires_grad);
      if (!is_trained && !parameters.empty()) frozen_.push_back(layer);
    }
    set_mode(false);
  }
  void before_step(RunView&) override { set_mode(false); }
  void after_train(RunView&, Outcome) override { set_mode(true); }

 private:
  void set_mode(bool is_training) const {
    for (const auto& layer : frozen_) layer->train(is_training);
  }

  std::vector<std::shared_ptr<models::BatchNorm>> frozen_;
};

const std::string kKey = "finetune.unfreeze";  // start of each message

/// Holds parameters until they join the training, and keeps the blocks that the patterns name in evaluation mode
/// meanwhile. The set that is frozen follows from the step alone, so there is nothing to save.
class FreezeHook : public Hook {
 public:
  explicit FreezeHook(Unfreezing unfreezing) : Hook(HookReads::nothing()), unfreezing_(std::move(unfreezing)) {}

  void before_train(RunView& run) override {
    run.world.all_or_throw([&] { find(run); });
    if (is_due(run.progress)) freeze(run);
  }

  // A run may have gone back to a checkpoint, too.
  void before_step(RunView& run) override {
    const bool is_due_now = is_due(run.progress);
    if (is_due_now && !is_frozen_) freeze(run);
    if (!is_due_now && is_frozen_) {
      release(run);
      log::info(kKey + ": all parameters are updated again from " + end_text() + " on");
    }
    set_modes();
  }

  // An evaluation leaves all of the model in training mode.
  void after_evaluation(RunView&, const Measured&) override { set_modes(); }
  void before_evaluation(RunView&) override { set_modes(); }

  void after_train(RunView& run, Outcome) override {
    if (is_frozen_) release(run);
  }

 private:
  bool is_due(const Progress& progress) const {
    return unfreezing_.epoch > 0 ? progress.epoch < unfreezing_.epoch : progress.step < unfreezing_.step;
  }
  std::string end_text() const {
    return unfreezing_.epoch > 0 ? "epoch " + std::to_string(unfreezing_.epoch + 1)
                                 : "step " + std::to_string(unfreezing_.step + 1);
  }

  void find(RunView& run) {
    const parallel::ParameterStore& store = run.wrapper.store();
    for (const std::string& pattern : unfreezing_.patterns) {
      bool is_known = false;
      for (std::size_t i = 0; i < store.size(); ++i) {
        if (!covers_name(pattern, store.parameter(i).name)) continue;
        is_known = true;
        if (std::find(parameters_.begin(), parameters_.end(), i) == parameters_.end()) parameters_.push_back(i);
      }
      if (!is_known) {
        throw ConfigError(kKey + ": no trained parameter is named '" + pattern + "' or belongs to such a block");
      }
    }
    if (run.optimizer.uses_closure()) {
      throw ConfigError(kKey + ": " + run.optimizer.optimizer().rule().name +
                        " updates all parameters together and cannot be combined with parameters that join later");
    }
    for (const auto& child : run.wrapper.model().named_modules({}, /*include_self=*/false)) {
      const bool is_named = std::ranges::any_of(
          unfreezing_.patterns, [&](const std::string& pattern) { return matches_name(pattern, child.key()); });
      if (is_named) blocks_.push_back(child.value());
    }
  }

  void require_some_left(const parallel::ParameterStore& store) const {
    for (std::size_t i = 0; i < store.size(); ++i) {
      if (!store.is_held(i)) return;
    }
    throw ConfigError(kKey + ": no parameter is left to update");
  }

  void freeze(RunView& run) {
    for (const std::size_t parameter : parameters_) run.wrapper.store().hold(parameter);
    is_frozen_ = true;
    run.world.all_or_throw([&] { require_some_left(run.wrapper.store()); });
    log::info(kKey + ": " + std::to_string(parameters_.size()) + " parameters are not updated before " + end_text());
  }

  void release(RunView& run) {
    for (const std::size_t parameter : parameters_) run.wrapper.store().let_go(parameter);
    for (const auto& block : blocks_) block->train();
    is_frozen_ = false;
  }

  void set_modes() const {
    for (const auto& block : blocks_) {
      if (is_frozen_) block->eval();
    }
  }

  Unfreezing unfreezing_;
  std::vector<std::size_t> parameters_;  // indices in the store
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;
  bool is_frozen_ = false;
};

}  // namespace

std::vector<PrioritizedHook> finetune_hooks(const FinetuneSettings& settings) {
  std::vector<PrioritizedHook> hooks;
  const bool trains_all = std::ranges::find(settings.train, "all") != settings.train.end();
  if (settings.freezes_batch_norm && !trains_all)
    hooks.emplace_back(Priority::very_high, std::make_unique<FrozenBatchNormHook>());
  for (const Unfreezing& unfreezing : settings.unfreezings)
    hooks.emplace_back(Priority::very_high, std::make_unique<FreezeHook>(unfreezing));
  return hooks;
}

}  // namespace lockstep::engine
