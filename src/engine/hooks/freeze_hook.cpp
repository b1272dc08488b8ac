// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/option_list.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <string_view>

#include "hook_rows.hpp"

namespace lockstep::engine {

namespace {

/// As in file names, `*` stands for any text without a dot.
bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() && matches(pattern.substr(1), name.substr(1));
  }
  for (std::size_t taken = 0;; ++taken) {
    if (matches(pattern.substr(1), name.substr(taken))) return true;
    if (taken == name.size() || name[taken] == '.') return false;
  }
}

/// Whether that is the name, or a block that holds it.
bool covers(const std::string& pattern, const std::string& name) {
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (matches(pattern, std::string_view(name).substr(0, dot))) return true;
  }
  return matches(pattern, name);
}

/// What is frozen follows from the step alone, so there is nothing to save.
class FreezeHook : public Hook {
 public:
  FreezeHook(std::vector<std::string> patterns, std::int64_t until, std::string name)
      : patterns_(std::move(patterns)), until_(until), name_(std::move(name)) {}

  void before_train(Trainer& trainer) override {
    Strategy& strategy = trainer.strategy();
    strategy.world().together([&] { find(strategy); });
    if (is_due(trainer.progress())) freeze(strategy);
  }

  // A run may have gone back to a checkpoint, too.
  void before_step(Trainer& trainer) override {
    const bool is_due_now = is_due(trainer.progress());
    if (is_due_now && !is_frozen_) freeze(trainer.strategy());
    if (!is_due_now && is_frozen_) {
      release(trainer.strategy());
      log::info(name_ + ": all parameters are updated from step " + std::to_string(until_ + 1) + " on");
    }
    set_modes();
  }

  // An evaluation leaves all of the model in training mode.
  void after_evaluation(Trainer&, const Measured&) override { set_modes(); }
  void before_evaluation(Trainer&) override { set_modes(); }

  void after_train(Trainer& trainer, Outcome) override {
    if (is_frozen_) release(trainer.strategy());
  }

 private:
  bool is_due(const Progress& at) const { return until_ == 0 || at.step < until_; }

  void find(Strategy& strategy) {
    const parallel::ParameterStore& store = strategy.model().parameters();
    for (const std::string& pattern : patterns_) {
      bool is_known = false;
      for (std::size_t i = 0; i < store.size(); ++i) {
        if (!covers(pattern, store.parameter(i).name)) continue;
        is_known = true;
        if (std::find(parameters_.begin(), parameters_.end(), i) == parameters_.end()) parameters_.push_back(i);
      }
      if (!is_known) {
        throw ConfigError("train.hooks: freeze: no trained parameter is named '" + pattern +
                          "' or lies in such a block");
      }
    }
    if (strategy.optimizer().uses_closure()) {
      throw ConfigError("train.hooks: freeze: " + strategy.optimizer().optimizer().rule().name +
                        " moves all parameters as one");
    }
    for (const auto& child : strategy.model().model().named_modules({}, /*include_self=*/false)) {
      const bool is_named = std::any_of(patterns_.begin(), patterns_.end(),
                                        [&](const std::string& pattern) { return matches(pattern, child.key()); });
      if (is_named) blocks_.push_back(child.value());
    }
  }

  static void require_some_left(const parallel::ParameterStore& store) {
    for (std::size_t i = 0; i < store.size(); ++i) {
      if (!store.is_held(i)) return;
    }
    throw ConfigError("train.hooks: freeze: no parameter is left to be updated");
  }

  void freeze(Strategy& strategy) {
    for (const std::size_t parameter : parameters_) strategy.model().parameters().hold(parameter);
    is_frozen_ = true;
    strategy.world().together([&] { require_some_left(strategy.model().parameters()); });
    log::info(name_ + ": " + std::to_string(parameters_.size()) + " parameters are not updated" +
              (until_ == 0 ? "" : " before step " + std::to_string(until_ + 1)));
  }

  void release(Strategy& strategy) {
    for (const std::size_t parameter : parameters_) strategy.model().parameters().let_go(parameter);
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
  std::vector<std::string> patterns = split_list(options.text("names"), '/');
  std::erase(patterns, "");
  if (patterns.empty()) throw ConfigError("names is needed: what is frozen, such as names=conv1/block*");
  return std::make_unique<FreezeHook>(std::move(patterns), options.integer("until"), context.name);
}

}  // namespace lockstep::engine
