// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/training_layout.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <string>

#include "engine/settings/batch_layout.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/parts.hpp"
#include "engine/setup/post_local.hpp"
#include "engine/setup/strategy_table.hpp"

namespace lockstep::engine {

namespace {

/// The stage of sharding; 0 = none.
int stage_of(const StrategySettings& settings, int world_size) {
  return chosen_strategy(settings, world_size).lay_out == nullptr ? 0 : settings.stage;
}

/// The setting with which ranks communicate in forward or backward passes, so that they require equal numbers of them;
/// empty = none.
std::string cite_of_common_passes(const Sections& sections, int stage) {
  if (sections.at("ddp").boolean("sync_batch_norm")) return sections.at("ddp").cite("sync_batch_norm");
  return stage > 1 ? sections.at("strategy").cite("stage") : "";
}

/// @throws ConfigError  a setting that lanes cannot be combined with
void require_lanes_supported(const Cited<std::int64_t>& lanes, bool has_gpu, int stage, const optim::Rule& rule) {
  if (lanes.value == 0) return;
  if (has_gpu) {
    throw ConfigError(lanes.cite +
                      ": lanes require the CPU, because NCCL sums in an order that depends on the number of ranks; use "
                      "run.device=cpu");
  }
  const std::string fault = lanes.cite + " cannot be combined with strategy.stage=" + std::to_string(stage);
  if (stage > 1) {
    throw ConfigError(fault +
                      ": lanes are summed as whole gradients, of which this stage keeps slices only; use "
                      "strategy.stage=1");
  }
  if (stage == 1 && rule.is_whole()) {
    throw ConfigError(fault + " and optim.name=" + rule.name +
                      ": each parameter has one owner, and the order of sums depends on the number of ranks; use "
                      "strategy.name=ddp");
  }
}

}  // namespace

BatchLayout training_layout(const Sections& sections, const mpi::Communicator& world) {
  const int stage = stage_of(StrategySettings::from(sections.at("strategy")), world.size());
  return layout_of(BatchSettings::from(sections.at("train")), world.rank(), world.size(),
                   cite_of_common_passes(sections, stage));
}

void require_training_settings(const Sections& sections, const Registry& registry, const Resources& resources) {
  const StrategySettings strategy = StrategySettings::from(sections.at("strategy"));
  const optim::Rule& rule = chosen_rule(sections.at("optim"), registry.rules);
  require_lanes_supported(BatchSettings::from(sections.at("train")).lanes, resources.device.is_cuda(),
                          stage_of(strategy, resources.world.size()), rule);
  training_layout(sections, resources.world);
  require_parts(sections, registry);
  require_post_local(strategy.post_local, sections, rule.uses_closure());
}

}  // namespace lockstep::engine
