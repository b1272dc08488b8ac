// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <algorithm>

#include "engine/hooks/freeze_hook.hpp"
#include "engine/setup/finetune.hpp"

namespace lockstep::engine {

namespace {

/// The set that is frozen follows from the model alone, so there is nothing to save.
class FrozenBatchNormHook : public Hook {
 public:
  bool reads_report(const Progress&) const override { return false; }

  void before_train(RunView& run) override {
    frozen_.clear();
    for (const auto& module : run.wrapper.model().modules()) {
      const auto layer = std::dynamic_pointer_cast<models::BatchNorm>(module);
      if (!layer) continue;
      const std::vector<at::Tensor> parameters = layer->parameters();
      const bool is_trained = std::any_of(parameters.begin(), parameters.end(),
                                          [](const at::Tensor& parameter) { return parameter.requires_grad(); });
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

}  // namespace

std::vector<std::unique_ptr<Hook>> finetune_hooks(const FinetuneSettings& settings) {
  std::vector<std::unique_ptr<Hook>> hooks;
  const bool trains_all = std::find(settings.train.begin(), settings.train.end(), "all") != settings.train.end();
  if (settings.freezes_batch_norm && !trains_all) hooks.push_back(std::make_unique<FrozenBatchNormHook>());
  for (const Unfreezing& unfreezing : settings.unfreezings) hooks.push_back(freeze_hook(unfreezing));
  return hooks;
}

}  // namespace lockstep::engine
