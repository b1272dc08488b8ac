// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/run_splits.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoints/interop/timm_config.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "data/stores/image_splits.hpp"
#include "engine/saving/candidates.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using data::ChannelStatistics;

/// @throws CheckpointError  the array does not contain finite numbers
std::vector<double> numbers_in(const checkpoints::Array& array, const std::string& origin, const std::string& path) {
  std::vector<double> numbers(array.bytes.size() / sizeof(double));
  const bool fits = array.dtype == DType::float64 && array.shape.size() == 1 && !numbers.empty();
  if (fits) std::memcpy(numbers.data(), array.bytes.data(), array.bytes.size());
  const auto is_finite = [](double number) { return std::isfinite(number); };
  if (fits && std::all_of(numbers.begin(), numbers.end(), is_finite)) return numbers;
  throw CheckpointError(origin, path, "the statistics of the data are malformed");
}

/// @param array_at  returns the array at a path
template <class Call>
ChannelStatistics statistics_from(const std::string& origin, const Call& array_at) {
  ChannelStatistics statistics{.mean = numbers_in(array_at(kStatisticsMean), origin, kStatisticsMean),
                               .std = numbers_in(array_at(kStatisticsStd), origin, kStatisticsStd)};
  const auto is_positive = [](double number) { return number > 0; };
  if (statistics.mean.size() == statistics.std.size() &&
      std::all_of(statistics.std.begin(), statistics.std.end(), is_positive)) {
    return statistics;
  }
  throw CheckpointError(origin, kStatisticsStd, "the statistics of the data are malformed");
}

/// The statistics in a checkpoint, of which nothing else is read.
std::optional<ChannelStatistics> statistics_in(const std::string& checkpoint) {
  const auto arrays = checkpoints::read_checkpoint_index(checkpoint).arrays;
  const auto has_path = [](const checkpoints::IndexedArray& info) { return info.path == kStatisticsMean; };
  if (std::none_of(arrays.begin(), arrays.end(), has_path)) return std::nullopt;
  return statistics_from(checkpoint,
                         [&](const std::string& path) { return checkpoints::read_array(checkpoint, path); });
}

}  // namespace

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

std::optional<ChannelStatistics> stored_statistics(const checkpoints::Archive& archive) {
  if (!archive.has(kStatisticsMean)) return std::nullopt;
  return statistics_from(archive.origin(), [&](const std::string& path) { return archive.array(path); });
}

std::optional<ChannelStatistics> resumed_statistics(const mpi::Communicator& world, const ResumeSettings& settings,
                                                    const std::string& directory) {
  std::optional<ChannelStatistics> statistics;
  const std::vector<std::string> candidates = resume_candidates(world, settings.source, directory);
  if (world.is_root()) {
    for (const std::string& candidate : candidates) {
      try {
        statistics = statistics_in(candidate);
        break;
      } catch (const CheckpointError&) {  // resuming reports it, and tries the next one, too
      }
    }
  }
  return broadcast(world, statistics);
}

std::optional<ChannelStatistics> broadcast(const mpi::Communicator& world,
                                           const std::optional<ChannelStatistics>& statistics) {
  std::vector<std::int64_t> channels = {statistics ? std::ssize(statistics->mean) : 0};
  world.broadcast(std::span(channels));
  if (channels.front() == 0) return std::nullopt;
  ChannelStatistics all = world.is_root() ? *statistics : ChannelStatistics{};
  for (std::vector<double>* values : {&all.mean, &all.std}) {
    values->resize(static_cast<std::size_t>(channels.front()));
    world.broadcast(std::span(*values));
  }
  return all;
}

}  // namespace lockstep::engine
