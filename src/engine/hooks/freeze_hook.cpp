// SPDX-License-Identifier: BSD-3-Clause
#include "engine/hooks/freeze_hook.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <algorithm>

#include "core/name_pattern.hpp"
#include "engine/hooks/hook_rows.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

/// What is frozen follows from the step alone, so there is nothing to save.
class FreezeHook : public Hook {
 public:
  explicit FreezeHook(Freezing freezing) : freezing_(std::move(freezing)) {}

  bool reads_report(const Progress&) const override { return false; }

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
      log::info(freezing_.name + ": all parameters are updated again from " + end_text() + " on");
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
  bool is_for_ever() const { return freezing_.step == 0 && freezing_.epoch == 0; }
  bool is_due(const Progress& at) const {
    return is_for_ever() || (freezing_.epoch > 0 ? at.epoch < freezing_.epoch : at.step < freezing_.step);
  }
  std::string end_text() const {
    return freezing_.epoch > 0 ? "epoch " + std::to_string(freezing_.epoch + 1)
                               : "step " + std::to_string(freezing_.step + 1);
  }

  void find(RunView& run) {
    const parallel::ParameterStore& store = run.wrapper.store();
    for (const std::string& pattern : freezing_.patterns) {
      bool is_known = false;
      for (std::size_t i = 0; i < store.size(); ++i) {
        if (!covers_name(pattern, store.parameter(i).name)) continue;
        is_known = true;
        if (std::find(parameters_.begin(), parameters_.end(), i) == parameters_.end()) parameters_.push_back(i);
      }
      if (!is_known) {
        throw ConfigError(freezing_.place + ": no trained parameter is named '" + pattern +
                          "' or belongs to such a block");
      }
    }
    if (run.optimizer.uses_closure()) {
      throw ConfigError(freezing_.place + ": " + run.optimizer.optimizer().rule().name +
                        " updates all parameters together and cannot be combined with freeze");
    }
    for (const auto& child : run.wrapper.model().named_modules({}, /*include_self=*/false)) {
      const bool is_named = std::any_of(freezing_.patterns.begin(), freezing_.patterns.end(),
                                        [&](const std::string& pattern) { return matches_name(pattern, child.key()); });
      if (is_named) blocks_.push_back(child.value());
    }
  }

  void require_some_left(const parallel::ParameterStore& store) const {
    for (std::size_t i = 0; i < store.size(); ++i) {
      if (!store.is_held(i)) return;
    }
    throw ConfigError(freezing_.place + ": no parameter is left to update");
  }

  void freeze(RunView& run) {
    for (const std::size_t parameter : parameters_) run.wrapper.store().hold(parameter);
    is_frozen_ = true;
    run.world.all_or_throw([&] { require_some_left(run.wrapper.store()); });
    log::info(freezing_.name + ": " + std::to_string(parameters_.size()) + " parameters are not updated" +
              (is_for_ever() ? "" : " before " + end_text()));
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

  Freezing freezing_;
  std::vector<std::size_t> parameters_;  // indices in the store
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;
  bool is_frozen_ = false;
};

}  // namespace

std::unique_ptr<Hook> freeze_until(Freezing freezing) { return std::make_unique<FreezeHook>(std::move(freezing)); }

std::unique_ptr<Hook> freeze_hook(const Section& options, const HookContext& context) {
  std::vector<std::string> patterns = name_patterns(options.text("names"));
  if (patterns.empty()) throw ConfigError("option names is required, for example names=conv1/block*");
  return freeze_until({.patterns = std::move(patterns),
                       .step = options.integer("until"),
                       .place = "train.hooks: freeze",
                       .name = context.name});
}

}  // namespace lockstep::engine
