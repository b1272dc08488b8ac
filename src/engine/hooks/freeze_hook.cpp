// SPDX-License-Identifier: BSD-3-Clause
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
  FreezeHook(std::vector<std::string> patterns, std::int64_t until, std::string name)
      : patterns_(std::move(patterns)), until_(until), name_(std::move(name)) {}

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
      log::info(name_ + ": all parameters are updated again from step " + std::to_string(until_ + 1) + " on");
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
  bool is_due(const Progress& at) const { return until_ == 0 || at.step < until_; }

  void find(RunView& run) {
    const parallel::ParameterStore& store = run.wrapper.store();
    for (const std::string& pattern : patterns_) {
      bool is_known = false;
      for (std::size_t i = 0; i < store.size(); ++i) {
        if (!covers_name(pattern, store.parameter(i).name)) continue;
        is_known = true;
        if (std::find(parameters_.begin(), parameters_.end(), i) == parameters_.end()) parameters_.push_back(i);
      }
      if (!is_known) {
        throw ConfigError("train.hooks: freeze: no trained parameter is named '" + pattern +
                          "' or belongs to such a block");
      }
    }
    if (run.optimizer.uses_closure()) {
      throw ConfigError("train.hooks: freeze: " + run.optimizer.optimizer().rule().name +
                        " updates all parameters together and cannot be combined with freeze");
    }
    for (const auto& child : run.wrapper.model().named_modules({}, /*include_self=*/false)) {
      const bool is_named = std::any_of(patterns_.begin(), patterns_.end(),
                                        [&](const std::string& pattern) { return matches_name(pattern, child.key()); });
      if (is_named) blocks_.push_back(child.value());
    }
  }

  static void require_some_left(const parallel::ParameterStore& store) {
    for (std::size_t i = 0; i < store.size(); ++i) {
      if (!store.is_held(i)) return;
    }
    throw ConfigError("train.hooks: freeze: no parameter is left to update");
  }

  void freeze(RunView& run) {
    for (const std::size_t parameter : parameters_) run.wrapper.store().hold(parameter);
    is_frozen_ = true;
    run.world.all_or_throw([&] { require_some_left(run.wrapper.store()); });
    log::info(name_ + ": " + std::to_string(parameters_.size()) + " parameters are not updated" +
              (until_ == 0 ? "" : " before step " + std::to_string(until_ + 1)));
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

  std::vector<std::string> patterns_;
  std::int64_t until_;
  std::string name_;
  std::vector<std::size_t> parameters_;  // indices in the store
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;
  bool is_frozen_ = false;
};

}  // namespace

std::unique_ptr<Hook> freeze_hook(const Section& options, const HookContext& context) {
  std::vector<std::string> patterns = name_patterns(options.text("names"));
  if (patterns.empty()) throw ConfigError("option names is required, for example names=conv1/block*");
  return std::make_unique<FreezeHook>(std::move(patterns), options.integer("until"), context.name);
}

}  // namespace lockstep::engine
