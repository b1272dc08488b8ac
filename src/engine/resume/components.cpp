// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/components.hpp"

#include <set>
#include <stdexcept>

#include "engine/resume/run_state.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

void require_unique_names(const Components& components) {
  std::set<std::string> names;
  for (const auto& component : components) {
    if (names.insert(component->name()).second) continue;
    throw std::logic_error("two components of a checkpoint have the name '" + component->name() + "'");
  }
}

}  // namespace

Components captured_components(Run& run, const std::string& config_ini, const CapturedParts& parts) {
  Strategy& strategy = run.strategy;
  parallel::DistributedDataParallel& wrapper = strategy.model();
  // The order is that of the groups in the file. Of two components that lower the reproducibility to the same level,
  // the first gives the reason.
  Components components = {progress_state(run), data_state(run), origin_state(run, config_ini)};
  const auto add_for_each_part = [&](const auto& state_of) {
    if (!parts.has_optimizer) return;
    for (auto& [name, optimizer] : strategy.parts()) components.push_back(state_of(name, optimizer));
  };
  add_for_each_part([&](const std::string& name, optim::OptimWrapper& optimizer) {
    return scaler_state(name.empty() ? kScaler : kScaler + "/" + name, optimizer, strategy.world());
  });
  components.push_back(model_state(wrapper));
  if (parts.has_optimizer) components.push_back(parts_state(strategy));
  add_for_each_part([&](const std::string& name, optim::OptimWrapper& optimizer) {
    return optimizer_state({.group = name.empty() ? kOptimizer : kOptimizers + "/" + name,
                            .optimizer = &optimizer.optimizer(),
                            .store = &wrapper.store(),
                            .name = name,
                            .part = dynamic_cast<parallel::PartParameters*>(&optimizer.parameters())});
  });
  const Components others = {ema_state(strategy),       random_state(strategy.world()),
                             comm_hook_state(strategy), arithmetic_state(strategy),
                             buckets_state(strategy),   hooks_state(run, parts.has_schedule ? "" : "schedule")};
  components.insert(components.end(), others.begin(), others.end());
  for (const auto& [priority, hook] : run.hooks) {
    for (const auto& state : hook->states()) components.push_back(state);
  }
  require_unique_names(components);
  return components;
}

Components run_components(Run& run) { return captured_components(run, "", {}); }

}  // namespace lockstep::engine
