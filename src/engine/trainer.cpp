// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/message.hpp>
#include <lockstep/core/table.hpp>
#include <lockstep/engine/tables.hpp>
#include <lockstep/engine/trainer.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/generators.hpp>
#include <lockstep/parallel/lane_sum.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <stdexcept>

#include "run_bounds.hpp"

namespace lockstep::engine {

namespace {

// Bits of what rank 0 asks for.
constexpr unsigned kSave = 1;
constexpr unsigned kEnd = 2;

// Loss scales back off by half a step, so that after as many something else than the scale is at fault.
constexpr std::int64_t kMostSkippedInARow = 64;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::atomic<bool> Trainer::stop_requested_ = false;

Trainer::Trainer(const Sections& sections, Strategy& strategy, data::Splits splits, const Tables& tables)
    : strategy_(&strategy), tables_(&tables), splits_(std::move(splits)) {
  if (!strategy.is_prepared()) throw std::logic_error("Trainer: the strategy is not prepared");
  const Section& train = sections.at("train");
  const Section& data = sections.at("data");
  const Section& sched = sections.at("sched");
  const mpi::Communicator& world = strategy.world();
  world.together([&] {
    const std::int64_t global_batch = train.integer("global_batch_size");
    sampler_ = std::make_unique<data::Sampler>(
        data::make_sampler(data, {splits_.train.get(), global_batch, strategy.seed()}, tables.samplers));
    share_ = data::share_of(global_batch, world.rank(), world.size());
    micro_batch_ = train.integer("micro_batch") == 0 ? share_.count : train.integer("micro_batch");
    if (strategy.lanes() > 0) {
      micro_batch_ = global_batch / strategy.lanes();
      share_ = {strategy.first_lane() * micro_batch_, strategy.micro_batches() * micro_batch_};
    }
    loader_options_ = {.workers = static_cast<int>(data.integer("workers")),
                       .prefetch = static_cast<int>(2 + strategy.micro_batches()),
                       .name = "the training data",
                       .pins_memory = strategy.device().is_cuda()};
    bounds_ = std::make_unique<RunBounds>(train);
    const StepRow& row = find_row(tables.steps, train.text("step"), train.cite("step"));
    step_ = row.make(train);
    if (row.measures_sections || sections.at("log").boolean("sections")) {
      perf_ = std::make_unique<PerfStats>(make_device_clock(strategy.device()));
    }
    rules_ = sched.texts("rule");
    rules_origin_ = sched.origin("rule");
    progress_.steps_per_epoch = sampler_->steps_per_epoch();
    plan();
  });
  tell_ = [this](Moment moment, const LastBatch& last) { tell(moment, last); };
  auto nonfinite = std::make_unique<NonfiniteHook>(train);
  nonfinite_ = nonfinite.get();
  add_hook(Priority::very_high, std::move(nonfinite));
}

Trainer::~Trainer() = default;

/// From where the run is now: how many steps it has in all, and the schedule over them.
void Trainer::plan() {
  progress_.total_steps = bounds_->total_steps(progress_);
  const schedule::Numbers learned = schedule_.state();
  follow(rules_, {.total_steps = progress_.total_steps - schedule_begin_,
                  .steps_per_epoch = progress_.steps_per_epoch,
                  .samples_per_step = sampler_->global_batch_size()});
  if (!learned.empty()) schedule_.load_state(learned);
}

void Trainer::follow(std::vector<std::string> rules, const schedule::RunLength& length) {
  schedule_ = schedule::parse(rules, length, rules_origin_, tables_->curves);
  rules_ = std::move(rules);
  schedule_length_ = length;
}

double Trainer::schedule_factor(std::int64_t step) const {
  const optim::ParamGroup& group = strategy_->optimizer().optimizer().groups().front();
  const double base = group.base_lr == 0 ? 1.0 : group.base_lr;
  return schedule_.value(step - schedule_begin_, {.option = "lr", .group = group.name, .base = base}) / base;
}

void Trainer::add_hook(Priority priority, std::unique_ptr<Hook> hook) {
  for (const auto& [known_priority, known] : hooks_) {
    if (hook->state_name().empty() || known->state_name() != hook->state_name()) continue;
    throw std::logic_error("two hooks keep a state of the name '" + hook->state_name() + "'");
  }
  const auto place = std::upper_bound(hooks_.begin(), hooks_.end(), priority,
                                      [](Priority p, const auto& entry) { return p < entry.first; });
  hooks_.emplace(place, priority, std::move(hook));
}

void Trainer::report(const Record& record) {
  if (record.kind == "eval") {
    if (measured_.step != progress_.step) measured_ = {.step = progress_.step, .values = {}};
    for (const auto& [name, value] : record.values) {
      if (const double* const real = std::get_if<double>(&value)) measured_.values.emplace_back(name, *real);
    }
  }
  if (!strategy_->world().is_root()) return;
  for (const Reporter& reporter : reporters_) reporter(record);
}

void Trainer::resume_at(std::int64_t step, std::int64_t epoch, std::int64_t samples_in_epoch, std::int64_t samples) {
  const std::int64_t global_batch = sampler_->global_batch_size();
  if (samples_in_epoch % global_batch != 0) {
    throw CheckpointError("the checkpoint stands at sample " + std::to_string(samples_in_epoch) +
                          " of its epoch, which is no multiple of train.global_batch_size = " +
                          std::to_string(global_batch) + "; resume with the global batch of that run");
  }
  progress_.step = step;
  events_.set_step(step);
  progress_.epoch = epoch;
  progress_.step_in_epoch = samples_in_epoch / global_batch;
  progress_.samples = samples;
  plan();
}

std::vector<std::int64_t> Trainer::samples_of(std::int64_t position, std::int64_t part) const {
  const std::int64_t begin = part * micro_batch_;
  const data::Share share{share_.begin + begin, std::min(micro_batch_, share_.count - begin)};
  return sampler_->indices(position / progress_.steps_per_epoch, position % progress_.steps_per_epoch, share);
}

/// From where the run stands to its end.
std::unique_ptr<data::Loader> Trainer::open_loader() const {
  const std::int64_t first = progress_.epoch * progress_.steps_per_epoch + progress_.step_in_epoch;
  const std::int64_t steps = std::max<std::int64_t>(0, progress_.total_steps - progress_.step);
  const std::int64_t parts = strategy_->micro_batches();
  const auto micro_batch_indices = [this, parts](std::int64_t k) { return samples_of(k / parts, k % parts); };
  return std::make_unique<data::Loader>(splits_.train, micro_batch_indices, first * parts, (first + steps) * parts,
                                        loader_options_);
}

Outcome Trainer::train() {
  std::size_t begun = 0;  // hooks that have
  std::size_t ended = 0;
  try {
    for (; begun < hooks_.size(); ++begun) hooks_[begun].second->before_train(*this);
    const Outcome outcome = loop();
    while (ended < begun) hooks_[ended++].second->after_train(*this, outcome);
    return outcome;
  } catch (...) {
    end_after_failure(ended, begun);
    throw;
  }
}

/// Hooks that have begun and not ended hear of it; what they throw comes second.
void Trainer::end_after_failure(std::size_t first, std::size_t begun) noexcept {
  for (std::size_t i = first; i < begun; ++i) {
    try {
      hooks_[i].second->after_train(*this, Outcome::failed);
    } catch (const std::exception& error) {
      log::warning("after the failure, a hook failed, too: " + message_of(error));
    }
  }
}

Outcome Trainer::loop() {
  strategy_->model().model().train();
  reads_gradients_ =
      std::any_of(hooks_.begin(), hooks_.end(), [](const auto& h) { return h.second->reads_gradients(); });
  std::unique_ptr<data::Loader> loader = open_loader();
  bool is_in_epoch = false;
  std::optional<Outcome> outcome;
  while (progress_.step < progress_.total_steps && !outcome && !finish_requested_) {
    if (!std::exchange(is_in_epoch, true)) {
      for (auto& [priority, hook] : hooks_) hook->before_epoch(*this);
    }
    for (auto& [priority, hook] : hooks_) hook->before_step(*this);
    PerfTimer whole("train_step_total", perf_.get());
    whole.start();
    StepReport report = run_step(*loader);
    for (auto& [priority, hook] : hooks_) hook->before_agreement(*this);
    const Agreement agreement = agree(report);
    whole.stop();
    whole.record();
    if (agreement.goes_back && go_back()) {
      loader = open_loader();
      is_in_epoch = false;
      continue;
    }
    outcome = agreement.outcome;
    advance();
    report.progress = progress_;
    for (auto& [priority, hook] : hooks_) hook->after_step(*this, report);
    if (progress_.step_in_epoch == 0) {
      is_in_epoch = false;
      for (auto& [priority, hook] : hooks_) hook->after_epoch(*this);
    }
    for (auto& [priority, hook] : hooks_) hook->between_steps(*this, report);
  }
  const bool is_cut = progress_.step < progress_.total_steps && !finish_requested_;
  return is_cut ? *outcome : Outcome::done;
}

void Trainer::tell(Moment moment, const LastBatch& last) {
  for (auto& [priority, hook] : hooks_) {
    switch (moment) {
      case Moment::forward:
        hook->on_forward(*this, last);
        break;
      case Moment::loss:
        hook->on_loss(*this, last);
        break;
      case Moment::backward:
        hook->on_backward(*this, last);
        break;
      case Moment::update:
        hook->on_update(*this, last);
        break;
    }
  }
}

/// This rank's part of one step, without the report's loss.
StepReport Trainer::run_step(data::Loader& loader) {
  const auto begin = std::chrono::steady_clock::now();
  const double waited_before = loader.wait_seconds();
  StepReport report;
  report.samples = sampler_->global_batch_size();
  report.lr = strategy_->optimizer().optimizer().groups().front().options.at("lr");
  const optim::GradScaler* const scaler = strategy_->optimizer().scaler();
  if (scaler != nullptr) report.loss_scale = scaler->scale();
  optim::OptimWrapper& optimizer = strategy_->optimizer();
  losses_.clear();
  if (optimizer.uses_closure()) {
    minimise(loader, report);
  } else {
    for (std::int64_t part = 0; part < strategy_->micro_batches(); ++part) {
      const optim::UpdateReport update = run_micro_batch(next_of(loader), part);
      report.grad_norm = update.grad_norm;
      report.is_skipped = !update.is_finite;
    }
  }
  if (scaler != nullptr) report.skipped_steps = scaler->state().skipped_steps;
  if (report.is_skipped) report.grad_norm.reset();
  report.seconds = seconds_since(begin);
  report.data_seconds = loader.wait_seconds() - waited_before;
  return report;
}

data::Batch Trainer::next_of(data::Loader& loader) {
  const PerfScope timer("read_sample", perf_.get());
  return loader.next();
}

/// Number `part` of the step at hand. What is drawn in its forward is the same whenever it is run.
optim::UpdateReport Trainer::run_micro_batch(const data::Batch& batch, std::int64_t part) {
  const bool has_lanes = strategy_->lanes() > 0;
  // Of all that is drawn in a forward nothing depends on the rank where lanes are on.
  const auto place = static_cast<std::uint64_t>(part);
  models::seed_generators(strategy_->seed(), random::Stream::forward, static_cast<std::uint64_t>(progress_.step),
                          has_lanes ? static_cast<std::uint64_t>(strategy_->first_lane()) + place
                                    : strategy_->rank_of_draws() << 32 | place,
                          strategy_->device());
  const auto samples = static_cast<double>(batch.input.size(0));
  const auto world_size = static_cast<double>(strategy_->world().size());
  const auto global_batch = static_cast<double>(sampler_->global_batch_size());
  // The reducer divides by the number of ranks: with this factor every sample of the global batch weighs the same.
  const double weight = has_lanes ? 1 : world_size * samples / global_batch;
  StepContext context{.strategy = *strategy_,
                      .batch = batch,
                      .weight = weight,
                      .where = progress_.where(),
                      .reads_gradients = reads_gradients_,
                      .perf = perf_.get(),
                      .tell = tell_};
  const parallel::StepResult result = step_(context);
  for (const auto& [name, value] : result.values) events_.put_of_rank(name, value);
  losses_.push_back(has_lanes ? result.loss : result.loss * samples / global_batch);
  return result.update;
}

/// A step of an optimizer that evaluates the loss of its micro_batches several times. The report's loss is the first.
void Trainer::minimise(data::Loader& loader, StepReport& report) {
  std::vector<data::Batch> batches;
  for (std::int64_t part = 0; part < strategy_->micro_batches(); ++part) batches.push_back(next_of(loader));
  std::vector<double> first;
  const optim::UpdateReport update = strategy_->optimizer().update_with_closure([&] {
    losses_.clear();
    for (std::size_t part = 0; part < batches.size(); ++part) {
      run_micro_batch(batches[part], static_cast<std::int64_t>(part));
    }
    if (first.empty()) first = losses_;
    std::vector<double> losses = parts_of_loss();
    strategy_->collectives().all_reduce(losses.data(), losses.size(), DType::float64, mpi::ReduceOp::sum);
    return mean_loss(losses);
  });
  losses_ = std::move(first);
  report.grad_norm = update.grad_norm;
  report.evaluations = update.evaluations;
}

/// What this rank knows of the step's loss, to be summed over ranks: a place for each lane, or its part of the mean.
std::vector<double> Trainer::parts_of_loss() const {
  std::vector<double> parts(std::max<std::size_t>(1, static_cast<std::size_t>(strategy_->lanes())));
  if (strategy_->lanes() > 0) {
    std::copy(losses_.begin(), losses_.end(), parts.begin() + strategy_->first_lane());
  } else {
    for (const double loss : losses_) parts[0] += loss;
  }
  return parts;
}

/// @param sums  of parts_of_loss, over ranks
double Trainer::mean_loss(std::span<double> sums) const {
  if (strategy_->lanes() == 0) return sums[0];
  return parallel::sum_by_lanes(sums) / static_cast<double>(strategy_->lanes());
}

/// Sums the loss over ranks, and tells every rank what any of them asks for.
Trainer::Agreement Trainer::agree(StepReport& report) {
  // How many ranks ask for a stop, and what rank 0 asks for; how many cannot go on; then the loss.
  std::vector<double> said = parts_of_loss();
  said.insert(said.begin(), 3, 0);
  said[0] = stop_requested_.load(std::memory_order_relaxed) ? 1 : 0;
  if (strategy_->world().is_root()) {
    said[1] = (save_requested_ ? kSave : 0) + (end_requested_ ? kEnd : 0);
  }
  said[2] = failure_ ? 1 : 0;
  {
    const PerfScope timer("loss_all_reduce", perf_.get());
    strategy_->collectives().all_reduce(said.data(), said.size(), DType::float64, mpi::ReduceOp::sum);
  }
  if (said[2] > 0) {
    strategy_->world().together([this] {
      if (failure_) std::rethrow_exception(failure_);
    });
  }
  report.loss = mean_loss(std::span(said).subspan(3));
  const auto of_root = static_cast<unsigned>(said[1]);
  report.is_save_due = (of_root & kSave) != 0;
  save_requested_ = false;
  if (judge(report)) return {.outcome = std::nullopt, .goes_back = true};
  if ((of_root & kEnd) != 0) return {.outcome = Outcome::ended};
  if (said[0] > 0) return {.outcome = Outcome::stopped};
  return {};
}

/// Whether the run is to go back, since what it trains on is not finite.
bool Trainer::judge(const StepReport& report) {
  const bool is_scaled = strategy_->optimizer().scaler() != nullptr;
  const bool is_loss_finite = std::isfinite(report.loss);
  if (is_loss_finite && report.is_skipped && is_scaled) tell_skipped();
  if (is_loss_finite && (is_scaled || !report.is_skipped)) return false;
  const char* const what = is_loss_finite ? "the gradient" : "the loss";
  return nonfinite_->judge(progress_.step + 1, what, report.is_skipped) == NonfiniteHook::Verdict::roll_back;
}

/// Whether there was a checkpoint to go back to.
bool Trainer::go_back() {
  const std::string what = "step " + std::to_string(progress_.step + 1) + " is not finite";
  for (auto& [priority, hook] : hooks_) hook->before_roll_back(*this);
  if (!roll_back_ || !roll_back_()) {
    log::warning(what + ", and there is no checkpoint to go back to: it is passed over");
    return false;
  }
  log::warning(what + ": going back to step " + std::to_string(progress_.step));
  strategy_->model().model().train();
  for (auto& [priority, hook] : hooks_) hook->after_roll_back(*this);
  return true;
}

/// The step at hand was skipped: all ranks know.
void Trainer::tell_skipped() const {
  const optim::GradScaler& scaler = *strategy_->optimizer().scaler();
  const std::string step = std::to_string(progress_.step + 1);
  if (scaler.state().skipped_in_a_row >= kMostSkippedInARow) {
    throw_agreed(ExitCode::numeric, "the gradients of " + std::to_string(kMostSkippedInARow) +
                                        " steps in a row were not finite, up to step " + step +
                                        ", whatever the loss scale; the last checkpoint is kept: lower optim.lr or "
                                        "train.loss_scale, or take train.precision=bf16");
  }
  log::info(fmt::format("step {} skipped: its gradients are not finite in float16; the loss scale is now {:g}", step,
                        scaler.scale()));
}

void Trainer::note_saved(std::int64_t step, double seconds) {
  saves_ = {.last_step = step, .longest_seconds = std::max(saves_.longest_seconds, seconds)};
}

void Trainer::advance() {
  events_.set_step(++progress_.step);
  progress_.samples += sampler_->global_batch_size();
  if (++progress_.step_in_epoch == progress_.steps_per_epoch) {
    progress_.step_in_epoch = 0;
    ++progress_.epoch;
  }
}

}  // namespace lockstep::engine
