// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/run_splits.hpp"

#include <lockstep/log/log.hpp>

#include <algorithm>
#include <filesystem>

#include "checkpoints/interop/timm_config.hpp"
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
  data::Splits splits;
  std::optional<data::ChannelStatistics> own;
  world.all_or_throw([&] {
    if (host.rank() != 0 || !data::opens_images(data, registry.sources)) return;
    data::OpenOptions first = options;
    first.checks_images = true;
    splits = data::open(data, registry.sources, first, statistics);
    own = data::statistics_of(*splits.train);
  });
  statistics.values = broadcast(world, own);
  world.all_or_throw([&] {
    const bool is_open = splits.train && own == statistics.values;  // the images of another host can differ
    if (!is_open) splits = data::open(data, registry.sources, options, statistics);
  });
  if (world.is_root()) {
    for (const std::string& note : splits.notes) log::info(note);
  }
  return splits;
}

std::optional<Task> published_task(const mpi::Communicator& world, const Sections& sections) {
  std::optional<Task> task;
  world.all_or_throw([&] {
    for (const std::string& from : {sections.at("model").text("from"), sections.at("init").text("from")}) {
      std::error_code unreadable;
      const std::filesystem::path file = std::filesystem::path(from) / checkpoints::kConfigFile;
      if (from.empty() || !std::filesystem::exists(file, unreadable)) continue;
      const checkpoints::TimmConfig config = checkpoints::read_timm_config(from);
      task = Task{.classes = config.num_classes, .class_names = config.label_names};
      return;
    }
  });
  return task;
}

}  // namespace lockstep::engine
