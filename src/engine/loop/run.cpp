// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/run.hpp"

#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "engine/settings/log_settings.hpp"

namespace lockstep::engine {

namespace {

std::atomic<bool> is_stop_wanted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

std::unique_ptr<PerfStats> make_perf(const Sections& sections, const Registry& registry, at::Device device) {
  const bool is_wanted = LogSettings::from(sections.at("log")).times_sections;
  if (!is_wanted && !chosen_step(sections.at("train"), registry.steps).measures_sections) return nullptr;
  return std::make_unique<PerfStats>(make_device_clock(device));
}

}  // namespace

Run::Run(const Sections& sections, Composition& composition, RunData made_data, const Registry& registry)
    : resources(composition.resources),
      model(composition.model),
      updates(composition.updates),
      data(std::move(made_data)),
      bounds(RunBounds::from(sections.at("train"))),
      step(make_step(sections.at("train"), registry.steps)),
      perf(make_perf(sections, registry, resources.device)),
      progress{.steps_per_epoch = data.sampler().steps_per_epoch()},
      view{.progress = progress,
           .data = data,
           .world = resources.world,
           .collectives = *resources.collectives,
           .wrapper = *model.wrapper,
           .optimizer = updates.first(),
           .parts = updates.parts,
           .average = updates.average.get(),
           .device = resources.device,
           .draws = resources.draws,
           .schedule = updates.schedule,
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
  updates.schedule.plan({.total_steps = progress.total_steps,
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

void RunView::report(const Record& record) { reports.report(record, progress.step, world.is_root()); }

void RunView::notify(StepEvent event, const LastBatch& last) { hooks.notify(event, *this, last); }

void RunView::begin_evaluation() { hooks.each(&Hook::before_evaluation, *this); }

void RunView::end_evaluation(const Measured& results) { hooks.each(&Hook::after_evaluation, *this, results); }

void RunRequests::stop() noexcept { is_stop_wanted.store(true, std::memory_order_relaxed); }

bool RunRequests::is_stop_requested() noexcept { return is_stop_wanted.load(std::memory_order_relaxed); }

}  // namespace lockstep::engine
