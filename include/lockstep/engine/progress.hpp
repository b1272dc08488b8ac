// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::engine {

/// The largest number of steps: what twelve digits of a checkpoint's name hold.
inline constexpr double kMaxSteps = 1e12;

/// How far a run is. A step is one optimizer update.
struct Progress {
  std::int64_t step = 0;           ///< updates done
  std::int64_t total_steps = 0;    ///< updates of the whole run
  std::int64_t epoch = 0;          ///< epochs completed
  std::int64_t step_in_epoch = 0;  ///< updates done in the current epoch
  std::int64_t steps_per_epoch = 0;
  std::int64_t samples = 0;  ///< trained on since the run began, over all ranks

  /// The part of the run that is done, in [0, 1): of the coming step, and 1 where none is to come.
  double where() const {
    return total_steps <= step ? 1 : static_cast<double>(step) / static_cast<double>(total_steps);
  }

  /// One more step, on so many samples, is done.
  void advance(std::int64_t samples_of_step) {
    ++step;
    samples += samples_of_step;
    if (++step_in_epoch < steps_per_epoch) return;
    step_in_epoch = 0;
    ++epoch;
  }
};

/// What one step did, the same on every rank but for the times.
struct StepReport {
  Progress progress;                ///< after the step
  double loss = 0;                  ///< mean over the samples of the global batch
  std::optional<double> grad_norm;  ///< before clipping; none of a step that was skipped
  double lr = 0;                    ///< of the first parameter group
  std::int64_t samples = 0;         ///< global_batch_size
  double seconds = 0;               ///< this rank's wall time
  double data_seconds = 0;          ///< of which it waited for data
  bool is_save_due = false;         ///< rank 0 asked for a checkpoint
  bool is_skipped = false;  ///< under loss scaling its gradients were not finite: no parameter and no moment changed
  std::optional<double> loss_scale;         ///< what its losses were multiplied by; none: they are not scaled
  std::int64_t skipped_steps = 0;           ///< since the run began, this one included
  std::optional<std::int64_t> evaluations;  ///< of the loss, by an optimizer that needs several
};

/// How a run ended: with its last step; before it, to be continued; before it, with no more to come (file STOP).
enum class Outcome { done, stopped, ended, failed };

}  // namespace lockstep::engine
