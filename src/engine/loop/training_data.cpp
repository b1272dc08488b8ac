// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/training_data.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/system/available_memory.hpp"
#include "data/mixing.hpp"
#include "data/source/settings.hpp"
#include "engine/evaluation/target_check.hpp"
#include "engine/settings/loader_memory.hpp"
#include "engine/setup/training_layout.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::engine {

namespace {

std::shared_ptr<const data::Mixing> make_mixing(const Sections& sections, const data::Dataset& train,
                                                std::uint64_t seed) {
  data::MixSettings settings = data::MixSettings::from(sections.at("train"));
  if (settings.rules.value.empty()) return nullptr;
  if (sections.at("data").text("output") == "uint8") {
    throw ConfigError(settings.rules.cite +
                      ": samples are mixed as float32 numbers, but with data.output = uint8 the "
                      "batches contain bytes; remove train.mix or set data.output=float");
  }
  const double smoothing = sections.at("loss").real("label_smoothing");
  return std::make_shared<const data::Mixing>(
      data::Mixing::MixingOptions{.settings = std::move(settings), .smoothing = smoothing, .seed = seed}, train.task(),
      train.roles());
}

/// Not collective.
data::LoaderOptions loader_options(const data::DataSettings& settings, const Resources& resources,
                                   const models::Model& model, const BatchLayout& layout, const data::Dataset& train,
                                   bool mixes) {
  const bool has_gpu = resources.device.is_cuda();
  return {.workers = resources.loader_threads,
          .prefetch = std::max(settings.prefetch, static_cast<int>(2 + layout.micro_batches)),
          .name = "the training data",
          .pins_memory = has_gpu,
          .prefers_bytes = has_gpu && !mixes,
          .prefers_channels_last = model.family().prefers_channels_last,
          .check = target_check(model, train.task()),
          .read_ahead = settings.read_ahead,
          .stall_seconds = settings.stall_seconds,
          .warn = [](const std::string& text) { log::warning(text); }};
}

/// Limits data.prefetch to the available memory, and logs what the loader takes. Collective.
void limit_memory(const mpi::Communicator& world, const BatchLayout& layout, const data::Dataset& train, bool mixes,
                  data::LoaderOptions& loader) {
  const mpi::Topology topology = mpi::Topology::of(world);
  LoaderMemory wanted;
  LoaderMemory memory;
  world.all_or_throw([&] {
    const std::int64_t samples = layout.micro_batch_size + (mixes ? 1 : 0);
    wanted = {.batch_bytes = batch_bytes(loaded_layout(train, loader.prefers_bytes), samples),
              .prefetch = loader.prefetch,
              .in_use = layout.micro_batches};
    memory = fitted(wanted, 2 + layout.micro_batches, available_memory(), topology.local_size);
  });
  loader.prefetch = static_cast<int>(memory.prefetch);
  if (topology.local_rank != 0) return;
  const std::string text = loader_memory_text(memory, topology.local_size);
  if (memory.prefetch < wanted.prefetch) {
    log::warning("data.prefetch is reduced from " + std::to_string(wanted.prefetch) + " to " +
                 std::to_string(memory.prefetch) + ", because " + topology.host_name +
                 " has too little memory: " + text);
  } else {
    memory.is_large(topology.local_size) ? log::info(text) : log::debug(text);
  }
}

}  // namespace

RunData make_training_data(const Sections& sections, const Resources& resources, const WrappedModel& model,
                           data::Splits splits, const Registry& registry) {
  const Section& section = sections.at("data");
  const data::Dataset& train = *splits.train;
  const std::uint64_t seed = resources.draws.seed;
  BatchLayout layout;
  std::optional<data::Sampler> sampler;
  std::shared_ptr<const data::Mixing> mixing;
  data::LoaderOptions loader;
  std::string floats;
  resources.world.all_or_throw([&] {
    layout = training_layout(sections, resources.world);
    sampler = data::make_sampler(section, {&train, layout.global_batch_size, seed}, registry.samplers);
    mixing = make_mixing(sections, train, seed);
    loader = loader_options(data::DataSettings::from(section), resources, model.wrapper->model(), layout, train,
                            mixing != nullptr);
    if (resources.device.is_cuda()) floats = float_output_text(section, train, mixing != nullptr);
  });
  limit_memory(resources.world, layout, train, mixing != nullptr, loader);
  if (!floats.empty() && resources.world.is_root()) log::info(floats);
  return {std::move(splits), std::move(*sampler), layout, std::move(loader), std::move(mixing), resources.processors};
}

}  // namespace lockstep::engine
