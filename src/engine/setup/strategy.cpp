// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/strategy.hpp"

#include <lockstep/core/error.hpp>

#include <utility>

#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "mpi/process/topology.hpp"

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

constexpr std::int64_t kAllRanks = 0;
constexpr std::int64_t kRanksOfHost = -1;

/// A number of ranks, or a word for it.
std::int64_t group_size(const std::string& text, const char* word, std::int64_t value, const std::string& cite) {
  if (text == word) return value;
  if (const auto size = parse_integer(text); size && *size >= 1) return *size;
  throw ConfigError(cite + ": '" + text + "' is neither a positive number of ranks nor '" + word + "'");
}

/// "4:all" or "4:8,16:all".
std::vector<PostLocalSettings::Average> averages_in(const std::string& text, const std::string& cite) {
  std::vector<PostLocalSettings::Average> averages;
  for (const std::string& word : words_in(text)) {
    const std::size_t colon = word.find(':');
    const auto period = colon == std::string::npos ? std::nullopt : parse_integer(word.substr(0, colon));
    if (!period || *period < 1) {
      throw ConfigError(cite + ": '" + word + "' is not PERIOD:RANKS, such as 4:all, with a period of at least 1 step");
    }
    const PostLocalSettings::Average average{*period, group_size(word.substr(colon + 1), "all", kAllRanks, cite)};
    const bool is_after_all = !averages.empty() && averages.back().ranks == kAllRanks;
    const bool grows = averages.empty() || (average.period > averages.back().period &&
                                            (average.ranks == kAllRanks || average.ranks > averages.back().ranks));
    if (is_after_all || !grows) throw ConfigError(cite + ": periods and numbers of ranks must increase");
    averages.push_back(average);
  }
  if (!averages.empty() && averages.back().ranks != kAllRanks) {
    throw ConfigError(cite + ": the last average must be over all ranks, for example 16:all");
  }
  return averages;
}

/// The number of this rank's group of `ranks` consecutive ranks.
int group_of(std::int64_t ranks, const mpi::Communicator& world, const std::string& cite) {
  if (ranks == kAllRanks) return 0;
  if (world.size() % ranks != 0) {
    throw ConfigError(cite + ": groups of " + std::to_string(ranks) + " ranks do not divide " +
                      std::to_string(world.size()) + " ranks");
  }
  return static_cast<int>(world.rank() / ranks);
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
          keys::expert(keys::boolean(
              "strategy.separate", "false",
              "Wrap each child module of the model separately: each has an optimizer and gradient reductions "
              "of its own. optim.part changes the optimizer of the child with its name")),
      });
  const KeySpecs of_sharded = {
      keys::integer("strategy.stage", "3",
                    "State that strategy sharded divides among ranks. 1 = optimizer state; 2 = optimizer state and "
                    "gradients; 3 = optimizer state, gradients and parameters",
                    1, 3),
      keys::choice("strategy.shard_within", "all",
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
  };
  for (const KeySpec& key : of_sharded) keys.push_back(keys::read_by(key, "strategy.name", {"sharded"}));
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
          .post_local = PostLocalSettings::from(strategy)};
}

KeySpecs PostLocalSettings::keys() {
  const auto only_post_local = [](const KeySpec& key) {
    return keys::expert(keys::not_read_by(key, "strategy.post_local", {""}));
  };
  return {
      keys::expert(keys::text(
          "strategy.post_local", "",
          "Post-local SGD: averages of the parameters as PERIOD:RANKS. 4:all = over all ranks every 4 steps; "
          "4:8,16:all = over groups of 8 ranks every 4 steps, over all ranks every 16 steps. Empty = disabled")),
      only_post_local(keys::integer("strategy.post_local_begin", "100",
                                    "Post-local SGD: number of steps with gradients averaged over all ranks. After "
                                    "them, gradients are averaged over groups only",
                                    0, 1e12)),
      only_post_local(keys::text("strategy.post_local_group", "host",
                                 "Post-local SGD: ranks that average gradients in every step. host = the ranks of a "
                                 "host; or a number of consecutive ranks")),
  };
}

PostLocalSettings PostLocalSettings::from(const Section& strategy) {
  const std::string cite = strategy.cite("post_local");
  const std::string group_cite = strategy.cite("post_local_group");
  return {.averages = {averages_in(strategy.text("post_local"), cite), cite},
          .begin = strategy.integer("post_local_begin"),
          .group = {group_size(strategy.text("post_local_group"), "host", kRanksOfHost, group_cite), group_cite}};
}

PostLocal::PostLocal(const PostLocalSettings& settings, const mpi::Communicator& world, mpi::Collectives& all) {
  const mpi::Topology topology = mpi::Topology::of(world);
  std::vector<int> colors;
  world.all_or_throw([&] {
    const bool is_host = settings.group.value == kRanksOfHost;
    colors.push_back(is_host ? topology.host_index : group_of(settings.group.value, world, settings.group.cite));
    for (const auto& average : settings.averages.value)
      colors.push_back(group_of(average.ranks, world, settings.averages.cite));
  });
  parallel::PostLocalSgdOptions options{.start_step = settings.begin, .averages = {}};
  groups_.push_back(all.split(colors.front()));
  for (std::size_t i = 0; i < settings.averages.value.size(); ++i) {
    const auto& [period, ranks] = settings.averages.value[i];
    if (ranks != kAllRanks) groups_.push_back(all.split(colors[i + 1]));
    options.averages.push_back({period, ranks == kAllRanks ? &all : groups_.back().get()});
  }
  averages_ = std::make_unique<parallel::PostLocalSgd>(all, *groups_.front(), options);
}

void require_post_local(const PostLocalSettings& settings, const Sections& sections, bool uses_closure) {
  if (settings.averages.value.empty()) return;
  const auto refuse = [&settings](const std::string& what, const std::string& why) {
    throw ConfigError(settings.averages.cite + " cannot be combined with " + what + ": " + why);
  };
  const std::string& precision = sections.at("train").text("precision");
  if (sections.at("train").integer("lanes") > 0) refuse("train.lanes", "lanes require equal weights on all ranks");
  if (precision == "fp16") refuse("train.precision=fp16", "ranks would skip different steps; use bf16");
  if (sections.at("strategy").text("name") == "sharded") {
    refuse("strategy.name=sharded", "each rank requires the complete weights");
  }
  if (sections.at("ddp").text("comm_hook") != "none") {
    refuse("ddp.comm_hook", "post-local SGD is a communication hook itself");
  }
  if (sections.at("ema").text("kind") != "none") refuse("ema.kind", "an average requires equal weights on all ranks");
  if (uses_closure) refuse("optim.name=" + sections.at("optim").text("name"), "its line search requires equal weights");
}

}  // namespace lockstep::engine
