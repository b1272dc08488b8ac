// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/run.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/system/resources.hpp"
#include "data/mixing.hpp"
#include "data/source/settings.hpp"
#include "engine/evaluation/target_check.hpp"
#include "engine/settings/loader_memory.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/setup/composition.hpp"
#include "mpi/process/topology.hpp"
#include "schedule/named_schedule.hpp"

namespace lockstep::engine {

namespace {

void require_other_names(Hook& known, Hook& added) {
  for (const auto& known_state : known.states()) {
    for (const auto& state : added.states()) {
      if (known_state->name() != state->name()) continue;
      throw std::logic_error("two hooks have a state with the name '" + state->name() + "'");
    }
  }
}

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

std::atomic<bool> is_stop_wanted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

std::unique_ptr<PerfStats> make_perf(const Sections& sections, const Registry& registry, at::Device device) {
  const bool is_wanted = LogSettings::from(sections.at("log")).times_sections;
  if (!is_wanted && !chosen_step(sections.at("train"), registry.steps).measures_sections) return nullptr;
  return std::make_unique<PerfStats>(make_device_clock(device));
}

}  // namespace

/// Every record may state its step and epoch.
void RecordReports::require_own_names(const Record& record) {
  std::set<std::string> names;
  for (const auto& [name, value] : record.values) {
    const bool is_place = name == "step" || name == "epoch";
    const std::string& kind = is_place ? record.kind : kinds_.emplace(name, record.kind).first->second;
    if (names.insert(name).second && kind == record.kind) continue;
    throw ConfigError("two values of the log have the name '" + name +
                      "'; a hook, step, model or meter of this program must choose another name");
  }
}

void RecordReports::report(const Record& record, std::int64_t step, bool is_root) {
  require_own_names(record);
  if (record.kind == "eval") {
    if (measured_.step != step) measured_ = {.step = step, .values = {}};
    for (const auto& [name, value] : record.values) {
      if (const double* const real = std::get_if<double>(&value)) measured_.values.emplace_back(name, *real);
    }
  }
  if (!is_root) return;
  for (const Reporter& reporter : reporters_) reporter(record);
}

void HookList::add(PrioritizedHook added) {
  for (const auto& [priority, known] : hooks_) require_other_names(*known, *added.second);
  const auto place = std::ranges::upper_bound(hooks_, added.first, {}, &PrioritizedHook::first);
  hooks_.insert(place, std::move(added));
}

void HookList::notify(StepEvent event, RunView& run, const LastBatch& last) const {
  switch (event) {
    case StepEvent::forward:
      return each(&Hook::on_forward, run, last);
    case StepEvent::loss:
      return each(&Hook::on_loss, run, last);
    case StepEvent::backward:
      return each(&Hook::on_backward, run, last);
    case StepEvent::update:
      return each(&Hook::on_update, run, last);
  }
}

bool HookList::reads_gradients() const {
  return std::ranges::any_of(hooks_, [](const PrioritizedHook& entry) { return entry.second->reads().gradients; });
}

bool HookList::reads_report(const Progress& progress) const {
  return std::ranges::any_of(hooks_, [&progress](const PrioritizedHook& entry) {
    const auto& reads = entry.second->reads().report;
    return reads && reads(progress);
  });
}

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

data::Share BatchLayout::positions_of(std::int64_t part) const {
  // Parts have as many samples as possible, but each later part has at least one.
  const auto begin = [this](std::int64_t k) { return std::min(k * micro_batch_size, share.count - micro_batches + k); };
  return {share.begin + begin(part), begin(part + 1) - begin(part)};
}

std::vector<batch::Draw> RunData::draws_of(std::int64_t position, std::int64_t part) const {
  const std::int64_t steps = sampler_.steps_per_epoch();
  return sampler_.draws(position / steps, position % steps, layout_.positions_of(part));
}

std::vector<batch::Draw> RunData::draws_to_mix(std::int64_t position, std::int64_t part) const {
  std::vector<batch::Draw> draws = draws_of(position, part);
  if (draws.empty()) return draws;
  const std::int64_t begin = layout_.positions_of(part).begin;
  const std::int64_t steps = sampler_.steps_per_epoch();
  const data::Share before = begin > 0 ? data::Share{begin - 1, 1} : data::Share{0, layout_.global_batch_size};
  draws.insert(draws.begin(), sampler_.draws(position / steps, position % steps, before).back());
  return draws;
}

std::unique_ptr<data::Loader> RunData::open_loader(const Progress& progress) const {
  const std::int64_t first = progress.epoch * progress.steps_per_epoch + progress.step_in_epoch;
  const std::int64_t steps = std::max<std::int64_t>(0, progress.total_steps - progress.step);
  const std::int64_t parts = layout_.micro_batches;
  data::LoaderOptions options = loader_;
  data::Loader::Plan plan = [this, parts](std::int64_t k) { return draws_of(k / parts, k % parts); };
  if (mixing_) {
    const auto step_of = [=, done = progress.step](std::int64_t k) { return done + k / parts - first; };
    const auto rule_of = [this, step_of, total = progress.total_steps](std::int64_t k) {
      return mixing_->rule_of(step_of(k), total);
    };
    plan = [this, parts, rule_of](std::int64_t k) {
      return rule_of(k) == nullptr ? draws_of(k / parts, k % parts) : draws_to_mix(k / parts, k % parts);
    };
    options.change = [this, parts, step_of, rule_of](batch::Batch batch, std::int64_t k) {
      const data::MixRule* const rule = rule_of(k);
      if (rule == nullptr || batch.size() == 0) return batch;
      return mixing_->mixed(std::move(batch), *rule, step_of(k), layout_.positions_of(k % parts).begin);
    };
  }
  return std::make_unique<data::Loader>(splits_.train, std::move(plan), first * parts, (first + steps) * parts,
                                        std::move(options));
}

ScheduleSettings ScheduleSettings::from(const Section& sched) {
  return {.rules = schedule::rules_of(sched), .origin = schedule::origin_of_rules(sched)};
}

void ScheduleControl::plan(const schedule::RunLength& run) {
  const schedule::Numbers learned = schedule_.state();
  schedule::RunLength length = run;
  length.total_steps -= begin_;
  follow(rules(), length);
  if (!learned.empty()) schedule_.load_state(learned);
}

void ScheduleControl::follow(std::vector<std::string> rules, const schedule::RunLength& length) {
  schedule_ = schedule::parse(rules, length, settings_.origin, *curves_);
  settings_.rules = std::move(rules);
  length_ = length;
}

double ScheduleControl::factor(std::int64_t step, const optim::ParamGroup& group, const std::string& part) const {
  const double base = group.base_lr == 0 ? 1.0 : group.base_lr;
  return schedule_.value(step - begin_, {.option = "lr", .group = group.name, .part = part, .base = base}) / base;
}

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

void Run::advance(std::int64_t samples) {
  progress.advance(samples);
  events.set_step(progress.step);
}

void RunView::report(const Record& record) { reports.report(record, progress.step, world.is_root()); }

void RunView::notify(StepEvent event, const LastBatch& last) { hooks.notify(event, *this, last); }

void RunView::begin_evaluation() { hooks.each(&Hook::before_evaluation, *this); }

void RunView::end_evaluation(const Measured& results) { hooks.each(&Hook::after_evaluation, *this, results); }

void RunRequests::stop() noexcept { is_stop_wanted.store(true, std::memory_order_relaxed); }

bool RunRequests::is_stop_requested() noexcept { return is_stop_wanted.load(std::memory_order_relaxed); }

}  // namespace lockstep::engine
