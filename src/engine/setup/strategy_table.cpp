// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/strategy_table.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::engine {

namespace {

void require_one_rank(const StrategySettings& settings, int world_size) {
  if (world_size == 1) return;
  throw ConfigError(settings.name.cite + ": single requires one rank, but there are " + std::to_string(world_size) +
                    "; use ddp");
}

/// Losses are those of ddp but for rounding, and so are checkpoints, in both directions and on any number of ranks.
void shard(const StrategySettings& settings, parallel::DdpOptions& options) {
  options.shares_parameters = false;
  options.sharding = {.stage = settings.stage,
                      .blocks = words_in(settings.blocks),
                      .prefetches = settings.prefetches,
                      .offloads = settings.offloads,
                      .is_within_hosts = settings.is_within_hosts};
}

KeySpec name_key() {
  std::string help;
  std::vector<std::string> names = {"auto"};
  for (const StrategyRow& row : strategies()) {
    help += row.name + ": " + row.help + "; ";
    names.push_back(row.name);
  }
  return keys::choice("strategy.name", "auto", help + "auto: single for one rank, else ddp", std::move(names));
}

}  // namespace

const std::vector<StrategyRow>& strategies() {
  static const std::vector<StrategyRow> rows = {
      {.name = "single", .help = "one rank", .require = require_one_rank, .is_alone = true},
      {.name = "ddp", .help = "every rank holds the complete model"},
      {.name = "sharded", .help = "each rank holds a part of the state that strategy.stage selects", .lay_out = shard},
  };
  return rows;
}

const StrategyRow& chosen_strategy(const StrategySettings& settings, int world_size) {
  const bool is_auto = settings.name.value == "auto";
  return find_row(strategies(), is_auto ? (world_size == 1 ? "single" : "ddp") : settings.name.value,
                  settings.name.cite);
}

KeySpecs StrategySettings::keys() {
  KeySpecs keys = keys::titled(
      "Distribution of the model over ranks",
      {
          name_key(),
          keys::integer("strategy.stage", "3",
                        "State that strategy sharded divides among ranks. 1 = optimizer state; 2 = optimizer state and "
                        "gradients; 3 = optimizer state, gradients and parameters",
                        1, 3),
          keys::choice(
              "strategy.shard_within", "all",
              "Ranks among which strategy sharded divides the state. all = all ranks; host = the ranks of each "
              "host: every host has a copy of the state, and gradients are averaged between hosts once per step. "
              "All hosts must have the same number of ranks",
              {"all", "host"}),
          keys::text("strategy.blocks", "",
                     "Stage 3: blocks for which parameters are gathered together, as comma-separated patterns such as "
                     "\"block*\". If empty, the outermost blocks that contain blocks are used"),
          keys::boolean("strategy.prefetch", "true",
                        "Stage 3: gather the parameters of the next block while the current block computes"),
          keys::boolean("strategy.offload", "false",
                        "Sharded on GPUs: keep the optimizer state in host memory and update on the CPU. Has no effect "
                        "on CPU runs"),
      });
  keys.push_back(keys::boolean(
      "strategy.separate", "false",
      "Wrap each child module of the model separately: each has an optimizer and gradient reductions of its own. "
      "optim.part changes the optimizer of the child with its name"));
  for (KeySpec& key : PostLocalSettings::keys()) keys.push_back(std::move(key));
  return keys;
}

StrategySettings StrategySettings::from(const Section& strategy) {
  return {.name = cited_text(strategy, "name"),
          .stage = static_cast<int>(strategy.integer("stage")),
          .is_within_hosts = strategy.text("shard_within") == "host",
          .blocks = strategy.text("blocks"),
          .prefetches = strategy.boolean("prefetch"),
          .offloads = strategy.boolean("offload"),
          .is_separate = strategy.boolean("separate"),
          .post_local = PostLocalSettings::from(strategy)};
}

}  // namespace lockstep::engine
