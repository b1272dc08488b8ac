// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/components.hpp"

#include <set>
#include <stdexcept>

#include "engine/resume/run_state.hpp"
#include "engine/state/paths.hpp"
#include "parallel/store/part_parameters.hpp"

namespace lockstep::engine {

namespace {

const std::string kScheduleState = "hooks/schedule";

void require_unique_names(const Components& components) {
  std::set<std::string> names;
  for (const auto& component : components) {
    if (names.insert(component->name()).second) continue;
    throw std::logic_error("two components of a checkpoint have the name '" + component->name() + "'");
  }
}

}  // namespace

Components captured_components(Run& run, const std::string& config_ini, const CapturedParts& parts) {
  parallel::DistributedDataParallel& wrapper = *run.model.wrapper;
  // The order is that of the groups in the file. Of two components that lower the reproducibility to the same level,
  // the first gives the reason.
  Components components = {progress_state(run), data_state(run), origin_state(run, config_ini)};
  const auto add_for_each_part = [&](const auto& state_of) {
    if (!parts.has_optimizer) return;
    for (auto& [name, optimizer] : run.updates.parts) components.push_back(state_of(name, optimizer));
  };
  add_for_each_part([&](const std::string& name, optim::OptimWrapper& optimizer) {
    return scaler_state(name.empty() ? kScaler : kScaler + "/" + name, optimizer, run.resources.world);
  });
  components.push_back(model_state(wrapper));
  if (parts.has_optimizer) components.push_back(parts_state(run));
  add_for_each_part([&](const std::string& name, optim::OptimWrapper& optimizer) {
    return optimizer_state({.group = name.empty() ? kOptimizer : kOptimizers + "/" + name,
                            .optimizer = &optimizer.optimizer(),
                            .store = &wrapper.store(),
                            .name = name,
                            .part = dynamic_cast<parallel::PartParameters*>(&optimizer.parameters())});
  });
  const Components others = {ema_state(run), random_state(run.resources.world), comm_hook_state(run),
                             arithmetic_state(run), buckets_state(run)};
  components.insert(components.end(), others.begin(), others.end());
  for (const auto& [priority, hook] : run.hooks) {
    for (const auto& state : hook->states()) {
      if (parts.has_schedule || state->name() != kScheduleState) components.push_back(state);
    }
  }
  require_unique_names(components);
  return components;
}

Components run_components(Run& run) { return captured_components(run, "", {}); }

}  // namespace lockstep::engine
