// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/run_splits.hpp"

#include <lockstep/log/log.hpp>

#include "engine/setup/process.hpp"

namespace lockstep::engine {

data::OpenOptions open_options(const Sections& sections, const Registry& registry) {
  return {.seed = RunSettings::from(sections.at("run")).seed, .transforms = &registry.transforms};
}

data::Splits open_splits(const mpi::Communicator& world, const Section& data, const Registry& registry,
                         const data::OpenOptions& options) {
  const mpi::Communicator host = world.split_by_host();
  world.all_or_throw([&] {
    if (host.rank() == 0) data::prepare(data, registry.sources, options);
  });
  data::Splits splits;
  world.all_or_throw([&] { splits = data::open(data, registry.sources, options); });
  if (world.is_root()) {
    for (const std::string& note : splits.notes) log::info(note);
  }
  return splits;
}

}  // namespace lockstep::engine
