// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/run_splits.hpp"

#include <lockstep/log/log.hpp>

#include <algorithm>

#include "data/source/given_statistics.hpp"
#include "engine/settings/process.hpp"
#include "engine/setup/stored_data.hpp"

namespace lockstep::engine {

data::OpenOptions open_options(const Sections& sections, const Registry& registry) {
  return {.seed = RunSettings::from(sections.at("run")).seed, .transforms = &registry.transforms};
}

data::UsedSplits used_splits(std::initializer_list<std::string> names) {
  const auto has = [&names](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return {.val = has("val"), .test = has("test")};
}

data::Splits open_splits(const mpi::Communicator& world, const Section& data, const Registry& registry,
                         const data::OpenOptions& options, const std::optional<data::ChannelStatistics>& stored) {
  const mpi::Communicator host = world.split_by_host();
  data::GivenStatistics statistics{.values = stored, .origin = stored ? "from the checkpoint" : "measured"};
  world.all_or_throw([&] {
    if (host.rank() == 0) statistics.values = data::prepare(data, registry.sources, options, statistics);
  });
  statistics.values = broadcast(world, statistics.values);
  data::Splits splits;
  world.all_or_throw([&] { splits = data::open(data, registry.sources, options, statistics); });
  if (world.is_root()) {
    for (const std::string& note : splits.notes) log::info(note);
  }
  return splits;
}

}  // namespace lockstep::engine
