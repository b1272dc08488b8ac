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
#include "engine/resume/resume.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/setup/composition.hpp"
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
    {"model.name", "mlp"}, {"model.hidden", "16"},    {"data.train_size", "100"},       {"optim.name", "adamw"},
    {"optim.lr", "0.01"},  {"train.max_steps", "12"}, {"train.global_batch_size", "12"}};

/// Notes the loss of every step, and the norm of its gradients where they are clipped. A GPU is not waited for.
class NotingHook : public Hook {
 public:
  NotingHook(std::vector<double>& losses, std::vector<double>& norms)
      : Hook(HookReads::nothing()), losses_(&losses), norms_(&norms) {}
  void on_measured(RunView&, const StepReport& report) override {
    losses_->push_back(report.loss);
    if (report.grad_norm) norms_->push_back(*report.grad_norm);
  }

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

/// The resources of a run, unless a test changes it.
inline Resources usual_resources(const Sections& sections, const mpi::Communicator& world) {
  return make_resources(sections, world);
}

/// One run in memory: what engine::train sets up, but for evaluation, logs and files.
struct SmallRun {
  /// @param registry           outlives the run
  /// @param parameters_type  of a model that is not built from the settings
  /// @param make             the resources
  SmallRun(const mpi::Communicator& world, const Settings& settings, const Registry& registry = builtin_registry(),
           std::optional<at::ScalarType> parameters_type = {}, decltype(&usual_resources) make = usual_resources)
      : sections(sections_of(settings, registry)),
        splits(data::open(sections.at("data"), registry.sources)),
        made(make(sections, world), sections, registry, splits.train->task(), {.given = given_model(parameters_type)}),
        trainer(sections, made, splits, registry) {
    if (model.post_local) trainer.add_hook(post_local_hook(model.post_local->averages()));
    trainer.add_hook(schedule_hook(sections.at("resume").text("schedule")));
    trainer.add_hook(Priority::normal, std::make_unique<NotingHook>(losses, norms));
  }

  std::shared_ptr<models::Model> given_model(std::optional<at::ScalarType> type) const {
    return type ? models::build(sections.at("model"), splits.train->task(), 5, *type) : nullptr;
  }

  /// The same as in engine::train.
  PrioritizedHook checkpoint_hook(const std::string& directory, const std::string& config_ini) {
    return engine::checkpoint_hook(SavingSettings::from(sections.at("ckpt")), resources.world, directory, nullptr,
                                   [this, config_ini, copies = std::make_shared<DeviceCopies>()](bool is_writer) {
                                     return capture(trainer, config_ini, is_writer, {}, copies.get());
                                   });
  }

  Sections sections;
  data::Splits splits;
  Composition made;
  const Resources& resources = made.resources;
  WrappedModel& model = made.model;
  Updates& updates = made.updates;
  Trainer trainer;
  std::vector<double> losses;
  std::vector<double> norms;
};

inline EvaluationResult evaluate(const SmallRun& run, const data::Dataset& dataset, std::int64_t batch_size,
                                 metrics::Meters& meters) {
  return evaluate(run.resources.world, *run.model.wrapper, dataset, {batch_size}, meters);
}

inline EvaluationResult evaluate(const SmallRun& run, const data::Dataset& dataset, std::int64_t batch_size) {
  metrics::Meters none;
  return evaluate(run, dataset, batch_size, none);
}

/// Restores the checkpoint that the settings of the run request.
inline std::optional<std::string> load_or_resume(SmallRun& run, const std::string& directory) {
  const ResumeSettings settings = agreed(run.resources.world, [&run] { return ResumeSettings::from(run.sections); });
  return load_or_resume(run.trainer, settings, directory);
}

}  // namespace lockstep::engine
