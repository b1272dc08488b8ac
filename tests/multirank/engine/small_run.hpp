// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/evaluation/evaluation.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/loop/trainer.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/session.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/state/device_copies.hpp"

namespace lockstep::engine {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// The defaults of every key, changed by `settings` ("optim.lr", "0.1").
inline Sections sections_of(const Settings& settings, const Registry& registry = builtin_registry()) {
  Sections sections;
  for (const KeySpec& key : all_keys(registry)) {
    const std::string name = key.name.find('.') == std::string::npos ? "" : key.name.substr(0, key.name.find('.'));
    sections.try_emplace(name, Section(name)).first->second.declare(key);
  }
  for (const auto& [name, text] : settings) {
    const std::size_t dot = name.find('.');
    const bool has_section = dot != std::string::npos;
    sections.at(has_section ? name.substr(0, dot) : "").set(name.substr(has_section ? dot + 1 : 0), text, "test");
  }
  return sections;
}

inline Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

/// Twelve steps of a small mlp by AdamW.
inline const Settings kTwelveSteps = {
    {"model.name", "mlp"}, {"model.hidden", "16"},    {"data.train_size", "100"},        {"optim.name", "adamw"},
    {"optim.lr", "0.01"},  {"train.max_steps", "12"}, {"train.global_batch_size", "12"}, {"train.max_epochs", "0"}};

/// Notes the loss of every step, and the norm of its gradients where they are clipped. A GPU is not waited for.
class NotingHook : public Hook {
 public:
  NotingHook(std::vector<double>& losses, std::vector<double>& norms) : losses_(&losses), norms_(&norms) {}
  void on_measured(RunView&, const StepReport& report) override {
    losses_->push_back(report.loss);
    if (report.grad_norm) norms_->push_back(*report.grad_norm);
  }
  bool reads_report(const Progress&) const override { return false; }

 private:
  std::vector<double>* losses_;
  std::vector<double>* norms_;
};

/// A request that reports nothing but the steps at which the run starts.
/// @param sections, registry, starts  outlive the request
inline TrainRequest quiet_request(const Sections& sections, const Registry& registry, std::string checkpoint_directory,
                                  std::vector<std::int64_t>& starts) {
  return {.sections = sections,
          .registry = registry,
          .checkpoint_directory = std::move(checkpoint_directory),
          .config_ini = "",
          .environment_json = "{}",
          .reporter = [](const Record&) {},
          .on_start = [&starts](std::int64_t step, const auto&) { starts.push_back(step); },
          .hooks = {}};
}

inline EvaluationResult evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size) {
  return evaluate(strategy.world(), strategy.model(), dataset, {batch_size});
}

inline EvaluationResult evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size,
                                 metrics::Meters& meters) {
  return evaluate(strategy.world(), strategy.model(), dataset, {batch_size}, meters);
}

/// One run in memory: what engine::train sets up, but for evaluation, logs and files.
struct SmallRun {
  /// @param registry           outlives the run
  /// @param parameters_type  of a model that is not built by the strategy
  /// @param make             the strategy
  SmallRun(const mpi::Communicator& world, const Settings& settings, const Registry& registry = builtin_registry(),
           std::optional<at::ScalarType> parameters_type = {}, decltype(&make_strategy) make = make_strategy)
      : sections(sections_of(settings, registry)),
        splits(data::open(sections.at("data"), registry.sources)),
        made(make(sections, world, registry)),
        strategy(made->prepare(splits.train->task(), overrides_of(parameters_type))),
        trainer(sections, strategy, splits, registry) {
    if (strategy.post_local() != nullptr) trainer.add_hook(Priority::highest, post_local_hook(*strategy.post_local()));
    trainer.add_hook(Priority::low, schedule_hook(sections.at("resume").text("schedule")));
    trainer.add_hook(Priority::normal, std::make_unique<NotingHook>(losses, norms));
  }

  Overrides overrides_of(std::optional<at::ScalarType> type) const {
    if (!type) return {};
    return {.model = models::build(sections.at("model"), splits.train->task(), 5, *type)};
  }

  /// The same as in engine::train.
  std::unique_ptr<Hook> checkpoint_hook(const std::string& directory, const std::string& config_ini) {
    return engine::checkpoint_hook(SavingSettings::from(sections.at("ckpt")), strategy.world(), directory, nullptr,
                                   [this, config_ini, copies = std::make_shared<DeviceCopies>()](bool is_writer) {
                                     return capture(trainer, config_ini, is_writer, {}, copies.get());
                                   });
  }

  Sections sections;
  data::Splits splits;
  std::unique_ptr<Strategy> made;
  Strategy& strategy;
  Trainer trainer;
  std::vector<double> losses;
  std::vector<double> norms;
};

}  // namespace lockstep::engine
