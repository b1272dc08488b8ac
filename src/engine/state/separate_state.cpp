// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/separate_state.hpp"

#include <set>
#include <string>
#include <vector>

#include "engine/state/components.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using parallel::SeparateDistributedDataParallel;

/// The model, and each optimizer with its loss scale.
Components separate_components(SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers) {
  std::vector<parallel::DistributedDataParallel*> children;
  for (const std::string& name : wrapper.names()) children.push_back(&wrapper.child(name));
  Components components = {model_state(wrapper.model(), std::move(children))};
  for (auto& [name, optimizer] : optimizers) {
    components.push_back(optimizer_state({.group = "/optim/" + name,
                                          .optimizer = &optimizer.optimizer(),
                                          .store = &wrapper.child(name).store(),
                                          .name = name}));
    components.push_back(scaler_state(kScaler + "/" + name, optimizer, wrapper.world()));
  }
  return components;
}

void require_compatible(const Components& components, const Archive& archive, optim::OptimWrapperDict& optimizers) {
  CompatibilityReport report(archive, /*offers_remedies=*/false);
  for (const auto& component : components) component->compare(archive, {}, report);
  std::set<std::string> names;
  for (const auto& [name, optimizer] : optimizers) names.insert(name);
  for (const std::string& name : archive.groups_in("/optim")) {
    if (names.contains(name)) continue;
    report.add({.kind = MismatchKind::optimizer, .text = "the run does not have an optimizer named " + name});
  }
  report.throw_if_any();
}

}  // namespace

Archive capture(SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers, std::int64_t step,
                bool is_writer) {
  Archive archive;
  const StateWriter writer(archive, is_writer);
  writer.set("/", "step", step);
  for (const auto& component : separate_components(wrapper, optimizers)) component->capture(writer);
  return archive;
}

std::int64_t restore(SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers,
                     const Archive& archive) {
  const Components components = separate_components(wrapper, optimizers);
  wrapper.world().all_or_throw([&] { require_compatible(components, archive, optimizers); });
  for (const auto& component : components) component->restore(archive, {});
  for (auto& [name, optimizer] : optimizers) optimizer.reset();
  return archive.integer("/", "step");
}

}  // namespace lockstep::engine
