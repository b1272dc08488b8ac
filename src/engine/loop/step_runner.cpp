// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/step_runner.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "core/system/status_line.hpp"
#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "models/layers/generators.hpp"
#include "models/losses/task_table.hpp"
#include "mpi/shared/lane_tree.hpp"

namespace lockstep::engine {

namespace {

/// A count as two whole numbers, of 2^-20 and of 2^-62. Their sums are exact, so that they do not depend on the order
/// of batches and ranks, also where class weights make counts of fractions.
constexpr double kCoarse = 0x1p-20;
constexpr double kFine = 0x1p-62;

std::pair<double, double> whole_numbers_of(double count) {
  const double coarse = std::round(count / kCoarse);
  return {coarse, std::round((count - coarse * kCoarse) / kFine)};
}

/// Sections are timed, and gradients read, by hosts that know what has been computed; several optimizers take turns.
bool can_read_late(const Run& run, bool reads_gradients) {
  return run.resources.gpu != nullptr && run.step.reads_late && !run.view.optimizer.uses_closure() &&
         !run.updates.has_parts && run.perf == nullptr && !reads_gradients;
}

void note_update(StepReport& report, const optim::UpdateReport& update) {
  report.grad_norm = update.grad_norm;
  report.is_skipped = !update.is_finite;
}

}  // namespace

/// Weights the losses of a step by the numbers of items that the model counts in its batches (models::Model::counts),
/// so that the step trains the mean over all items of the global batch, however they are divided. The default losses of
/// the kind of the task count the targets that are not ignored; a step without ignored targets has the usual weights.
class StepRunner::LossCounts {
 public:
  /// Finds out whether the model counts. Collective.
  /// @param first  this rank's first micro_batch
  /// @throws ConfigError  the ranks' models count items of different losses; on every rank
  LossCounts(const models::Model& model, const batch::Batch& first, const mpi::Communicator& world) {
    world.all_or_throw([&] {
      for (const auto& [name, count] : models::counts_of(model, first)) names_.push_back(name);
    });
    const std::vector<std::string> all = world.all_gather(joined(names_));
    world.all_or_throw([&] {
      if (all[static_cast<std::size_t>(world.rank())] == all.front()) return;
      throw ConfigError("the model counts items of the losses '" + joined(names_) + "', but on rank 0 of '" +
                        all.front() + "'");
    });
    if (!names_.empty() || !models::counts_by_task(model)) return;
    names_.push_back("loss");
    is_of_task_ = true;
  }

  /// No loss is counted.
  bool is_empty() const noexcept { return names_.empty(); }

  /// The weights of this rank's micro_batches of one step. Collective.
  /// @param usual  by micro_batch: the weight of losses that are not counted; 0 = nothing of it counts
  /// @param parts  into how many averages of equal weight the reducer divides the step: ranks, or lanes
  /// @throws ConfigError  on every rank: counting failed on one, or a count is negative or not finite
  std::vector<models::LossWeights> weigh(const models::Model& model, std::span<const batch::Batch> batches,
                                         std::span<const double> usual, double parts, const mpi::Communicator& world,
                                         mpi::Collectives& collectives) const {
    std::vector<std::vector<double>> counts;
    const std::size_t numbers = names_.size() + (is_of_task_ ? 1 : 0);
    std::vector<double> sums(2 * numbers, 0.0);
    std::exception_ptr failure;
    try {
      for (std::size_t b = 0; b < batches.size(); ++b) {
        counts.push_back(usual[b] == 0 ? std::vector<double>(numbers, 0) : counts_of(model, batches[b]));
        for (std::size_t i = 0; i < numbers; ++i) {
          const auto [coarse, fine] = whole_numbers_of(counts.back()[i]);
          sums[2 * i] += coarse;
          sums[2 * i + 1] += fine;
        }
      }
    } catch (...) {
      failure = std::current_exception();
      sums.assign(sums.size(), std::numeric_limits<double>::quiet_NaN());  // NaN tells all ranks of the failure
    }
    collectives.all_reduce(sums.data(), sums.size(), DType::float64, mpi::ReduceOp::sum);
    if (std::isnan(sums.front())) {
      world.all_or_throw([&] {
        if (failure) std::rethrow_exception(failure);
      });
    }
    std::vector<double> totals;
    for (std::size_t i = 0; i < numbers; ++i) totals.push_back(sums[2 * i] * kCoarse + sums[2 * i + 1] * kFine);
    std::vector<models::LossWeights> weights;
    for (std::size_t b = 0; b < batches.size(); ++b) weights.push_back(weights_of(counts[b], usual[b], parts, totals));
    return weights;
  }

 private:
  /// The counts in the order of the names. Of default losses, the number of targets that do not count follows.
  std::vector<double> counts_of(const models::Model& model, const batch::Batch& batch) const {
    if (is_of_task_) {
      const models::TargetCount targets = models::count_targets(model, batch);
      return {targets.counted, targets.all - targets.counted};
    }
    std::vector<double> counts;
    std::vector<std::string> names;
    for (const auto& [name, count] : models::counts_of(model, batch)) {
      if (!(count >= 0) || std::isinf(count)) {
        throw ConfigError("the model counts " + number_text(count) + " items of the loss '" + name + "'");
      }
      names.push_back(name);
      counts.push_back(count);
    }
    if (names == names_) return counts;
    throw ConfigError("the model counts items of the losses '" + joined(names) + "', but in the first batch of '" +
                      joined(names_) + "'");
  }

  /// @param counts  of a micro_batch
  /// @param totals  the same of the step
  models::LossWeights weights_of(const std::vector<double>& counts, double usual, double parts,
                                 const std::vector<double>& totals) const {
    models::LossWeights weights(usual);
    if (is_of_task_ && totals.back() == 0) return weights;
    weights.are_of_task = is_of_task_;
    weights.count_nothing = true;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      weights.by_name.emplace_back(names_[i], totals[i] == 0 ? 0 : parts * counts[i] / totals[i]);
      weights.count_nothing = weights.count_nothing && totals[i] == 0;
    }
    return weights;
  }

  std::vector<std::string> names_;
  bool is_of_task_ = false;
};

StepRunner::StepRunner(Run& run, bool reads_gradients)
    : run_(&run),
      reads_gradients_(reads_gradients),
      reads_late_(can_read_late(run, reads_gradients)),
      notify_([&run](StepEvent event, const LastBatch& last) { run.view.notify(event, last); }) {
  if (run.resources.uses_cuda_graphs) {
    captured_ = std::make_unique<CapturedStep>(run, reads_gradients, reads_late_, notify_,
                                               [this](std::int64_t part) { seed_draws(part); });
  }
  run.view.optimizer.set_late_reports(reads_late_);
}

StepRunner::~StepRunner() { run_->view.optimizer.set_late_reports(false); }

QueuedStep StepRunner::run(const StepInput& input) {
  const auto begin = std::chrono::steady_clock::now();
  const data::Loader* const loader = input.loader;
  const double waited_before = loader == nullptr ? 0 : loader->wait_seconds();
  const double worked_before = loader == nullptr ? 0 : loader->work_seconds();
  optim::OptimWrapper& optimizer = run_->view.optimizer;
  const optim::GradScaler* const scaler = run_->updates.all().scaler();
  input_ = input;
  set_step(run_->progress.step + 1);
  if (input_.samples == 0) input_.samples = run_->data.layout().global_batch_size;
  QueuedStep step;
  StepReport& report = step.report;
  report.samples = input_.samples;
  report.lr = optimizer.optimizer().groups().front().options.at("lr");
  if (scaler != nullptr) report.loss_scale = scaler->scale();
  optimizer.uses_closure() ? run_closure_step(step) : run_micro_batches(step);
  if (scaler != nullptr && reads_late_) report.loss_scale = scaler->scale();  // not known before, and not updated yet
  report.is_measured = !reads_late_;
  if (report.is_measured) complete(report);
  report.seconds = seconds_since(begin);
  if (loader != nullptr) {
    report.data_seconds = loader->wait_seconds() - waited_before;
    report.loading_seconds = loader->work_seconds() - worked_before;
  }
  return step;
}

double StepRunner::measure(QueuedStep& step) {
  if (step.report.is_measured) return 0;
  const auto begin = std::chrono::steady_clock::now();
  for (QueuedStep::QueuedMicroBatch& part : step.parts) complete(part, step);
  step.parts.clear();
  if (std::exchange(step.has_pending_update, false)) note_update(step.report, run_->view.optimizer.take_report());
  step.report.is_measured = true;
  complete(step.report);
  return seconds_since(begin);
}

void StepRunner::discard(QueuedStep& step) {
  for (QueuedStep::QueuedMicroBatch& part : step.parts) part.result.finish();
  run_->view.optimizer.drop_reports();
}

/// Completes what follows from the update.
void StepRunner::complete(StepReport& report) const {
  const optim::GradScaler* const scaler = run_->updates.all().scaler();
  if (scaler != nullptr) report.skipped_steps = scaler->state().skipped_steps;
  report.is_skipped = report.is_skipped || report.is_void;
  if (report.is_skipped) report.grad_norm.reset();
}

void StepRunner::run_micro_batches(QueuedStep& step) {
  batch::Batch first = next();
  if (!counts_) counts_ = std::make_unique<LossCounts>(run_->view.wrapper.model(), first, run_->view.world);
  if (counts_->is_empty() && !may_capture()) {
    run_micro_batch(first, 0, usual_weight(counted(first, 0)), step);
    for (std::int64_t part = 1; part < run_->data.layout().micro_batches; ++part) {
      const batch::Batch batch = next();
      run_micro_batch(batch, part, usual_weight(counted(batch, part)), step);
    }
    return;
  }
  const std::vector<batch::Batch> batches = batches_of_step(std::move(first));
  const std::vector<models::LossWeights> weights = weigh(batches);
  if (may_capture()) captured_->begin(batches, weights);
  for (std::size_t part = 0; part < batches.size(); ++part) {
    run_micro_batch(batches[part], static_cast<std::int64_t>(part), weights[part], step);
  }
}

/// A step of an optimizer that evaluates the loss of its micro_batches several times. The report's loss is the first.
void StepRunner::run_closure_step(QueuedStep& step) {
  const std::vector<batch::Batch> batches = batches_of_step(next());
  if (!counts_) counts_ = std::make_unique<LossCounts>(run_->view.wrapper.model(), batches.front(), run_->view.world);
  const std::vector<models::LossWeights> weights = weigh(batches);
  std::vector<double> first;
  const optim::UpdateReport update = run_->view.optimizer.update_with_closure([&] {
    step.losses.clear();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      run_micro_batch(batches[i], static_cast<std::int64_t>(i), weights[i], step);
    }
    if (first.empty()) first = step.losses;
    std::vector<double> losses = loss_parts(step);
    run_->view.collectives.all_reduce(losses.data(), losses.size(), DType::float64, mpi::ReduceOp::sum);
    return mean_loss(losses);
  });
  step.losses = std::move(first);
  step.report.grad_norm = update.grad_norm;
  step.report.evaluations = update.evaluations;
}

batch::Batch StepRunner::next() {
  set_phase(Phase::data);
  const PerfScope timer("read_sample", run_->perf.get());
  return input_.next();
}

std::vector<batch::Batch> StepRunner::batches_of_step(batch::Batch first) {
  std::vector<batch::Batch> batches;
  batches.push_back(std::move(first));
  while (std::ssize(batches) < run_->data.layout().micro_batches) batches.push_back(next());
  return batches;
}

double StepRunner::counted(const batch::Batch& batch, std::int64_t part) const {
  return static_cast<double>(input_.counts.empty() ? batch.size() : input_.counts[static_cast<std::size_t>(part)]);
}

/// The weight of a micro_batch by its samples. The reducer divides by the number of ranks or lanes: with this factor
/// every sample of the global batch weighs the same.
double StepRunner::usual_weight(double samples) const {
  const std::int64_t lanes = run_->data.layout().lanes;
  const auto parts = static_cast<double>(lanes > 0 ? lanes : run_->view.world.size());
  return parts * samples / static_cast<double>(input_.samples);
}

std::vector<models::LossWeights> StepRunner::weigh(const std::vector<batch::Batch>& batches) const {
  std::vector<double> usual;
  for (std::size_t part = 0; part < batches.size(); ++part) {
    usual.push_back(usual_weight(counted(batches[part], static_cast<std::int64_t>(part))));
  }
  if (counts_->is_empty()) return {usual.begin(), usual.end()};
  const std::int64_t lanes = run_->data.layout().lanes;
  const auto parts = static_cast<double>(lanes > 0 ? lanes : run_->view.world.size());
  return counts_->weigh(run_->view.wrapper.model(), batches, usual, parts, run_->view.world, run_->view.collectives);
}

parallel::StepResult StepRunner::step_result(const batch::Batch& batch, std::int64_t part,
                                             const models::LossWeights& weights) {
  if (captured_ && captured_->has_begun()) return captured_->run(part, batch, weights);
  seed_draws(part);
  // A program that gives the samples of its steps can continue after the length of the run.
  const double last = input_.loader == nullptr ? std::nextafter(1.0, 0.0) : 1.0;
  StepContext context{.wrapper = run_->view.wrapper,
                      .optimizer = run_->updates.all(),
                      .parts = run_->view.parts,
                      .batch = batch,
                      .weights = weights,
                      .where = std::min(run_->progress.where(), last),
                      .reads_gradients = reads_gradients_,
                      .perf = run_->perf.get(),
                      .notify = notify_,
                      .reads_late = reads_late_};
  return run_->step.run(context);
}

void StepRunner::run_micro_batch(const batch::Batch& batch, std::int64_t part, const models::LossWeights& weights,
                                 QueuedStep& step) {
  const double samples = counted(batch, part);
  models::Model& model = run_->view.wrapper.model();
  if (samples == 0) model.eval();  // statistics of batches do not see what only takes part
  QueuedStep::QueuedMicroBatch queued{
      .result = step_result(batch, part, weights), .samples = samples, .is_weighted = !weights.by_name.empty()};
  if (samples == 0) model.train();
  step.report.is_void = queued.result.is_void;
  step.has_pending_update = queued.result.update.is_pending;
  note_update(step.report, queued.result.update);
  if (reads_late_) {
    step.parts.push_back(std::move(queued));
  } else {
    complete(queued, step);
  }
}

/// Reads its values and notes them.
void StepRunner::complete(QueuedStep::QueuedMicroBatch& part, QueuedStep& step) {
  parallel::StepResult& result = part.result;
  result.finish();
  // The mean over the ranks is logged; of parts that train in turn, also on one rank: their losses have no sum of use.
  const bool is_of_all = run_->view.world.size() == 1 && run_->updates.has_parts;
  for (const auto& [name, value] : result.values) {
    is_of_all ? run_->events.put(name, value) : run_->events.put_of_rank(name, value);
  }
  step.losses.push_back(part_of_mean(part));
}

/// The share that a micro_batch adds to the step's mean loss; with lanes, to the sum over lanes.
double StepRunner::part_of_mean(const QueuedStep::QueuedMicroBatch& part) const {
  const BatchLayout& layout = run_->data.layout();
  const parallel::StepResult& result = part.result;
  if (part.is_weighted) {
    return layout.lanes > 0 ? result.weighted : result.weighted / static_cast<double>(run_->view.world.size());
  }
  if (part.samples == 0) return 0;
  if (layout.lanes > 0) return result.loss * usual_weight(part.samples);
  return result.loss * part.samples / static_cast<double>(input_.samples);
}

/// Every number that is drawn in a forward is the same whenever it is run; with lanes, nothing of it depends on the
/// rank.
void StepRunner::seed_draws(std::int64_t part) const {
  const BatchLayout& layout = run_->data.layout();
  const DrawSeeds& draws = run_->view.draws;
  const auto place = static_cast<std::uint64_t>(part);
  models::seed_generators(
      draws.seed, random::Stream::forward, static_cast<std::uint64_t>(run_->progress.step),
      layout.lanes > 0 ? static_cast<std::uint64_t>(layout.first_lane) + place : draws.rank << 32 | place,
      run_->view.device);
}

std::vector<double> StepRunner::loss_parts(const QueuedStep& step) const {
  const BatchLayout& layout = run_->data.layout();
  std::vector<double> parts(std::max<std::size_t>(1, static_cast<std::size_t>(layout.lanes)));
  if (layout.lanes > 0) {
    std::copy(step.losses.begin(), step.losses.end(), parts.begin() + layout.first_lane);
  } else {
    for (const double loss : step.losses) parts[0] += loss;
  }
  return parts;
}

double StepRunner::mean_loss(std::span<const double> sums) const {
  const std::int64_t lanes = run_->data.layout().lanes;
  if (lanes == 0) return sums[0];
  return mpi::sum_by_lanes(sums) / static_cast<double>(lanes);
}

}  // namespace lockstep::engine
