// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/loader.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/loop/captured_step.hpp"
#include "engine/loop/loss_counts.hpp"
#include "engine/loop/run.hpp"

namespace lockstep::engine {

/// Runs this rank's part of steps: its micro_batches, and their update.
class StepRunner {
 public:
  /// @param run  outlives the runner
  StepRunner(Run& run, bool reads_gradients);

  /// The next step, without the loss in its report. Collective as TrainStep is.
  StepReport run(data::Loader& loader);
  /// The part of the loss of the step on this rank, to be summed over ranks: a place for each lane, or its part of the
  /// mean.
  std::vector<double> loss_parts() const;
  /// The step's loss: the mean over the samples of the global batch.
  /// @param sums  of loss_parts, over ranks
  double mean_loss(std::span<const double> sums) const;

 private:
  void run_micro_batches(data::Loader& loader, StepReport& report);
  void run_closure_step(data::Loader& loader, StepReport& report);
  parallel::StepResult step_result(const batch::Batch& batch, std::int64_t part, const models::LossWeights& weights);
  optim::UpdateReport run_micro_batch(const batch::Batch& batch, std::int64_t part, const models::LossWeights& weights);
  double usual_weight(const batch::Batch& batch) const;
  double part_of_mean(const parallel::StepResult& result, const batch::Batch& batch,
                      const models::LossWeights& weights) const;
  std::vector<batch::Batch> batches_of_step(batch::Batch first, data::Loader& loader);
  std::vector<models::LossWeights> weigh(const std::vector<batch::Batch>& batches) const;
  void seed_draws(std::int64_t part) const;
  batch::Batch next_of(data::Loader& loader);

  Run* run_;
  bool reads_gradients_;  // a hook does
  std::function<void(StepEvent, const LastBatch&)> notify_;
  std::unique_ptr<CapturedStep> captured_;  // null = run.compile is off
  std::optional<LossCounts> counts_;        // from the first step on
  bool is_void_ = false;                    // the step at hand: none of its targets counts
  std::vector<double> losses_;              // of this rank's forwards in the step: of its lanes, or parts of the mean
};

}  // namespace lockstep::engine
