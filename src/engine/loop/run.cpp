// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/run.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/system/available_memory.hpp"
#include "core/text/table.hpp"
#include "data/mixing.hpp"
#include "data/source/settings.hpp"
#include "engine/evaluation/target_check.hpp"
#include "engine/settings/loader_memory.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/steps/rows.hpp"
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

/// Limits data.prefetch to the available memory, and logs what the loader takes. Collective.
void limit_memory(const Strategy& strategy, const data::Dataset& train, bool mixes, data::LoaderOptions& loader) {
  const BatchLayout& layout = strategy.layout();
  const mpi::Topology topology = mpi::Topology::of(strategy.world());
  const LoaderMemory wanted{
      .batch_bytes = batch_bytes(loaded_layout(train, loader.prefers_bytes), layout.micro_batch_size + (mixes ? 1 : 0)),
      .prefetch = loader.prefetch,
      .in_use = layout.micro_batches};
  LoaderMemory memory = wanted;
  strategy.world().all_or_throw(
      [&] { memory = fitted(wanted, 2 + layout.micro_batches, available_memory(), topology.local_size); });
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

/// Collective.
data::LoaderOptions make_loader(const Sections& sections, const data::Dataset& train, Strategy& strategy, bool mixes) {
  const Section& data = sections.at("data");
  const auto settings = data::DataSettings::from(data);
  const bool has_gpu = strategy.device().is_cuda();
  data::LoaderOptions loader{
      .workers = strategy.loader_threads(),
      .prefetch = std::max(settings.prefetch, static_cast<int>(2 + strategy.layout().micro_batches)),
      .name = "the training data",
      .pins_memory = has_gpu,
      .prefers_bytes = has_gpu && !mixes,
      .prefers_channels_last = strategy.model().model().prefers_channels_last(),
      .read_ahead = settings.read_ahead,
      .stall_seconds = settings.stall_seconds,
      .warn = [](const std::string& text) { log::warning(text); }};
  loader.check = target_check(strategy.model().model(), train.task());
  limit_memory(strategy, train, mixes, loader);
  const std::string floats = has_gpu ? float_output_text(data, train, mixes) : "";
  if (!floats.empty() && strategy.world().is_root()) log::info(floats);
  return loader;
}

RunData make_data(const Sections& sections, data::Splits splits, Strategy& strategy, const Registry& registry) {
  const BatchLayout& layout = strategy.layout();
  const std::uint64_t seed = strategy.draws().seed;
  data::Sampler sampler =
      data::make_sampler(sections.at("data"), {splits.train.get(), layout.global_batch_size, seed}, registry.samplers);
  std::shared_ptr<const data::Mixing> mixing = make_mixing(sections, *splits.train, seed);
  data::LoaderOptions loader = make_loader(sections, *splits.train, strategy, mixing != nullptr);
  return {std::move(splits), std::move(sampler), layout, std::move(loader), std::move(mixing), strategy.processors()};
}

std::unique_ptr<PerfStats> make_perf(const Sections& sections, const Registry& registry, at::Device device) {
  const bool is_wanted = LogSettings::from(sections.at("log")).times_sections;
  if (!is_wanted && !chosen_step(sections.at("train"), registry.steps).measures_sections) return nullptr;
  return std::make_unique<PerfStats>(make_device_clock(device));
}

}  // namespace

Run::Run(const Sections& sections, Strategy& used_strategy, data::Splits splits, const Registry& registry)
    : strategy(used_strategy),
      data(make_data(sections, std::move(splits), strategy, registry)),
      bounds(RunBounds::from(sections.at("train"))),
      step(make_step(sections.at("train"), registry.steps)),
      captured_losses(chosen_step(sections.at("train"), registry.steps).captured_losses),
      perf(make_perf(sections, registry, strategy.device())),
      schedule(ScheduleSettings::from(sections.at("sched")), registry.curves),
      progress{.steps_per_epoch = data.sampler().steps_per_epoch()},
      view{.progress = progress,
           .data = data,
           .world = strategy.world(),
           .collectives = strategy.collectives(),
           .wrapper = strategy.model(),
           .optimizer = strategy.optimizer(),
           .parts = strategy.parts(),
           .average = strategy.average(),
           .device = strategy.device(),
           .draws = strategy.draws(),
           .schedule = schedule,
           .events = events,
           .perf = perf.get(),
           .requests = requests,
           .saves = saves,
           .origin = origin,
           .extra = extra,
           .measured = reports.measured(),
           .reports = reports,
           .hooks = hooks} {
  plan();
}

/// The plan from where the run is now: how many steps it has in all, and the schedule over them.
void Run::plan() {
  progress.total_steps = bounds.total_steps(progress);
  schedule.plan({.total_steps = progress.total_steps,
                 .steps_per_epoch = progress.steps_per_epoch,
                 .samples_per_step = data.layout().global_batch_size});
}

void Run::resume_at(std::int64_t at_step, std::int64_t epoch, std::int64_t samples_in_epoch, std::int64_t samples) {
  const std::int64_t global_batch = data.layout().global_batch_size;
  const std::int64_t repeated = samples_in_epoch % global_batch;
  if (repeated != 0 && view.world.is_root()) {
    log::warning("the checkpoint was written at sample " + std::to_string(samples_in_epoch) +
                 " of its epoch, which is not a multiple of train.global_batch_size = " + std::to_string(global_batch) +
                 ": the last " + std::to_string(repeated) + " of these samples are repeated");
  }
  progress.step = at_step;
  events.set_step(at_step);
  progress.epoch = epoch;
  progress.step_in_epoch = samples_in_epoch / global_batch;
  if (progress.step_in_epoch >= progress.steps_per_epoch) {  // another batch size drops other samples at the end
    ++progress.epoch;
    progress.step_in_epoch = 0;
  }
  progress.samples = samples;
  plan();
}

void Run::advance() {
  progress.advance(data.layout().global_batch_size);
  events.set_step(progress.step);
}

}  // namespace lockstep::engine
