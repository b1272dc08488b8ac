// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/loop/captured_step.hpp"
#include "engine/loop/run.hpp"

namespace lockstep::engine {

/// The samples of a step on this rank.
struct StepInput {
  std::function<batch::Batch()> next;  ///< the micro_batches of this rank, in order
  std::int64_t samples = 0;            ///< of all ranks together; 0 = as the layout of the run says
  /// The numbers of samples that count in each micro_batch: all of it, or 0 for one that only takes part in what ranks
  /// do together. Empty = all of them count.
  std::vector<std::int64_t> counts = {};
  const data::Loader* loader = nullptr;  ///< the loader behind `next`, whose times are reported; null = there is none

  static StepInput of(data::Loader& loader) {
    return {.next = [&loader] { return loader.next(); }, .loader = &loader};
  }
};

/// A step of this rank. On a GPU its work may only be queued.
struct QueuedStep {
  /// A micro_batch with a result that is not complete.
  struct QueuedMicroBatch {
    parallel::StepResult result;
    double samples = 0;
    bool is_weighted = false;  ///< the weights count the items of the batch
  };

  StepReport report = {};                    ///< the loss is not known yet
  std::vector<QueuedMicroBatch> parts = {};  ///< that are not among `losses` yet
  std::vector<double> losses = {};           ///< losses of this rank's forwards: of its lanes, or parts of the mean
  bool has_pending_update = false;           ///< see optim::OptimWrapper::take_report
};

/// Runs this rank's part of steps: its micro_batches, and their update.
class StepRunner {
 public:
  /// @param run  outlives the runner
  StepRunner(Run& run, bool reads_gradients);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// Whether steps are complete only after `measure`, before which the next step can be run; equal on all ranks. On
  /// GPUs, unless the kind of the step or an option needs the values at once.
  bool reads_late() const noexcept { return reads_late_; }

  /// The next step. If not reads_late, it is complete but for the loss. Collective as TrainStep is.
  QueuedStep run(const StepInput& input);
  /// Completes a step, but for the loss. Each step once, in order. The host waits for it, not for later steps.
  /// @return  seconds that this takes
  double measure(QueuedStep& step);
  /// Instead of `measure`, for the last step that was run: the run has returned to an earlier one.
  void discard(QueuedStep& step);

  /// The part of the loss of the step on this rank, to be summed over ranks: a place for each lane, or its part of the
  /// mean. 0 without a step.
  std::vector<double> loss_parts(const QueuedStep& step) const;
  /// The step's loss: the mean over the samples of the global batch.
  /// @param sums  of loss_parts, over ranks
  double mean_loss(std::span<const double> sums) const;

 private:
  class LossCounts;

  void run_micro_batches(QueuedStep& step);
  bool may_capture() const { return captured_ && captured_->reason().empty(); }
  void run_closure_step(QueuedStep& step);
  parallel::StepResult step_result(const batch::Batch& batch, std::int64_t part, const models::LossWeights& weights);
  void run_micro_batch(const batch::Batch& batch, std::int64_t part, const models::LossWeights& weights,
                       QueuedStep& step);
  void complete(QueuedStep::QueuedMicroBatch& part, QueuedStep& step);
  void complete(StepReport& report) const;
  double counted(const batch::Batch& batch, std::int64_t part) const;
  double usual_weight(double samples) const;
  double part_of_mean(const QueuedStep::QueuedMicroBatch& part) const;
  std::vector<batch::Batch> batches_of_step(batch::Batch first);
  std::vector<models::LossWeights> weigh(const std::vector<batch::Batch>& batches) const;
  void seed_draws(std::int64_t part) const;
  batch::Batch next();

  Run* run_;
  StepInput input_;       // of the step at hand
  bool reads_gradients_;  // a hook does
  bool reads_late_;
  std::function<void(StepEvent, const LastBatch&)> notify_;
  std::unique_ptr<CapturedStep> captured_;  // null = run.cuda_graphs is off
  std::unique_ptr<LossCounts> counts_;      // set in the first step
};

}  // namespace lockstep::engine
