// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/measurements.hpp>
#include <lockstep/core/section.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::checkpoints {
class Archive;
}

namespace lockstep::engine {

/// The maximum number of steps: twelve digits in the names of checkpoints.
inline constexpr double kMaxSteps = 1e12;

/// The progress of a run. A step is one optimizer update.
struct Progress {
  std::int64_t step = 0;           ///< updates done
  std::int64_t total_steps = 0;    ///< updates of the whole run
  std::int64_t epoch = 0;          ///< epochs completed
  std::int64_t step_in_epoch = 0;  ///< updates done in the current epoch
  std::int64_t steps_per_epoch = 0;
  std::int64_t samples = 0;  ///< training samples since the start of the run, over all ranks

  /// The fraction of the run before the next step, in [0, 1); 1 after the last step.
  double where() const {
    return total_steps <= step ? 1 : static_cast<double>(step) / static_cast<double>(total_steps);
  }

  /// Counts one step with this number of samples.
  void advance(std::int64_t samples_of_step) {
    ++step;
    samples += samples_of_step;
    if (++step_in_epoch < steps_per_epoch) return;
    step_in_epoch = 0;
    ++epoch;
  }
};

/// The result of one step, equal on every rank except for the times.
struct StepReport {
  Progress progress;                 ///< progress after the step
  bool is_measured = true;           ///< false = a GPU still computes the step; loss, grad_norm, is_skipped and
                                     ///< skipped_steps are not known yet, see Hook::reads_report
  double loss = 0;                   ///< mean over the samples of the global batch
  std::optional<double> grad_norm;   ///< norm of the gradients before clipping; none for a skipped step
  double lr = 0;                     ///< learning rate of the first parameter group
  std::int64_t samples = 0;          ///< global_batch_size
  double seconds = 0;                ///< wall time of this rank; on a GPU with the wait for an earlier step
  double data_seconds = 0;           ///< part of `seconds` spent waiting for data
  double loading_seconds = 0;        ///< time that the loader threads of this rank spent on samples meanwhile
  bool is_save_due = false;          ///< rank 0 requested a checkpoint
  bool is_skipped = false;           ///< no parameter and no moment changed: gradients were not finite, or is_void
  bool is_void = false;              ///< no target of the global batch counts; the loss is NaN
  std::optional<double> loss_scale;  ///< factor on the losses; none = not scaled
  std::int64_t skipped_steps = 0;    ///< since the start of the run, including this one
  std::optional<std::int64_t> evaluations;  ///< evaluations of the loss, for closure rules
};

/// The end of a run: done = after its last step; stopped = earlier, to be resumed; ended = earlier, as requested by the
/// file STOP.
enum class Outcome { done, stopped, ended, failed };

}  // namespace lockstep::engine

namespace lockstep::checkpoints {
class Archive;
}

namespace lockstep::engine {

class Stateful;
struct LastBatch;
struct RunView;

/// The events of a micro-batch within a step.
enum class StepEvent { forward, loss, backward, update };

/// The values of the latest evaluation, equal on every rank.
struct Measured {
  std::int64_t step = -1;                              ///< step of the evaluation; -1 = none
  std::vector<std::pair<std::string, double>> values;  ///< the numbers of its records, such as "val/loss"
};

/// Receives records on rank 0.
using Reporter = std::function<void(const Record&)>;

/// The order of hooks at one event: a smaller number runs first. Equal ones run in order of registration.
enum class Priority : int {
  highest = 0,
  very_high = 10,
  high = 30,
  above_normal = 40,
  normal = 50,
  below_normal = 60,
  low = 70,
  very_low = 90,
  lowest = 100
};

/// A hook: functions that are called at the events of training, in this order:
///
///     before_train
///     for every epoch, or what a resumed run has left of it:
///       before_epoch
///       for every step:
///         before_step
///         for every micro_batch: on_forward, on_loss; of the last one, too: on_backward, on_update
///         before_agreement
///         on_measured of the step before, unless it was called; of this step, if a hook reads its report
///         after_step
///         after_epoch, when the step was the epoch's last
///         between_steps: evaluation (before_evaluation, its forwards, after_evaluation), then whatever goes by it,
///         then checkpoints (before_save)
///     after_train
///
/// The host does not wait for a GPU in a step with a report that no hook reads (reads_report): the values of that step
/// are known when the next one is queued. In a captured step (run.compile), on_forward to on_update are called when all
/// work of their micro-batch is queued, with tensors that the next micro-batch overwrites. When a run returns to a
/// checkpoint, before_roll_back and after_roll_back replace the events after before_agreement. Every rank calls every
/// hook in the same order, so a hook can use collectives. If a hook can throw on one rank only, use
/// mpi::Communicator::all_or_throw; otherwise the exception ends the job as the failure of one rank.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual void before_train(RunView&) {}
  virtual void before_epoch(RunView&) {}
  virtual void before_step(RunView&) {}
  /// Also called in evaluations (LastBatch::is_training is false), there without gradients. Autocast is active.
  virtual void on_forward(RunView&, const LastBatch&) {}
  /// Like on_forward, after the losses are computed.
  virtual void on_loss(RunView&, const LastBatch&) {}
  /// Called before the update. If reads_gradients is true, the gradients are available: averaged over ranks, not
  /// clipped, and multiplied by LastBatch::loss_scale.
  virtual void on_backward(RunView&, const LastBatch&) {}
  virtual void on_update(RunView&, const LastBatch&) {}
  /// Called when a step was computed or, on a GPU, queued. All ranks learn of requests made here in the same step.
  virtual void before_agreement(RunView&) {}
  /// Called once for each step that was not discarded, in order, when its report is complete: directly before
  /// after_step or, on a GPU, in the next step. RunView::progress can then be that of the next step,
  /// StepReport::progress is not.
  virtual void on_measured(RunView&, const StepReport&) {}
  /// Changes that belong to the step are made here: the next step begins afterwards.
  virtual void after_step(RunView&, const StepReport&) {}
  virtual void after_epoch(RunView&) {}
  /// Changes that a checkpoint of this step must contain are made before Priority::very_low of this event.
  virtual void between_steps(RunView&, const StepReport&) {}
  /// All ranks have agreed to return to the last checkpoint, see NonfiniteHook. Finish pending work here.
  virtual void before_roll_back(RunView&) {}
  /// The state is that of the checkpoint; load_state has been called.
  virtual void after_roll_back(RunView&) {}
  virtual void before_evaluation(RunView&) {}
  virtual void after_evaluation(RunView&, const Measured&) {}
  /// Called for every hook after before_train has returned. After Outcome::failed, do not use collectives, because
  /// other ranks can be at another place; exceptions are then logged, and the first error is rethrown.
  virtual void after_train(RunView&, Outcome) {}

  /// Whether on_backward reads gradients. All gradients are then gathered on every rank, which takes time.
  virtual bool reads_gradients() const { return false; }
  /// Whether after_step, after_epoch or between_steps of a step need its complete report, or that the step is not
  /// discarded afterwards (train.nonfinite). On a GPU the host then waits for the step. It always waits for the last
  /// step of an epoch and of the run. Not collective; ranks can differ.
  /// @param progress  after the step
  virtual bool reads_report(const Progress& /*progress*/) const { return true; }

  /// Called before a checkpoint: makes the values for save_state equal on all ranks. Collective.
  virtual void before_save(RunView&) {}
  /// The unique name of the state of this hook in checkpoints; empty = no state.
  virtual std::string state_name() const { return ""; }
  /// Writes the state, which is equal on every rank, below `group`. Called on ranks that write checkpoints; not
  /// collective.
  virtual void save_state(checkpoints::Archive&, const std::string& /*group*/) const {}
  /// Restores the state before training, if the checkpoint contains the group. Called on every rank; not collective.
  /// @throws CheckpointError  the state was not written by save_state
  virtual void load_state(const checkpoints::Archive&, const std::string& /*group*/) {}
  /// Additional components of checkpoints, the same on every rank; see Stateful.
  virtual std::vector<std::shared_ptr<Stateful>> states() const { return {}; }
};

/// The arguments of a row of the table of hooks, in addition to its options.
struct HookContext {
  const Sections& run;  ///< configuration of the run; outlives the hook
  std::string
      name;  ///< unique name of the hook, for state_name: name of the row, or "early_stopping#2" for the second one
};

/// A row of the table of hooks. A program can append rows to Registry::hooks.
struct HookRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of the options
  Priority priority = Priority::normal;
  /// Creates the hook. Not collective. Throws ConfigError if options contradict each other.
  std::function<std::unique_ptr<Hook>(const Section& options, const HookContext& context)> make;
};

/// early_stopping, precise_bn, sync_buffers, memory, profiler, parameter_statistics, nan_output, empty_cache,
/// run_time.
const std::vector<HookRow>& builtin_hooks();

/// The option that every hook has, without its default, which is the priority of the row.
KeySpec common_hook_key();

/// Creates the hooks of `train.hooks` ("early_stopping,metric=val/accuracy,patience=3"), in order, with the priority of
/// their rows or of the option `priority` ("low", or 0 to 100).
/// @param name  only hooks with this name; empty = all
/// @throws ConfigError  a name or option is unknown (the message states similar names), or a row rejects a value
/// Not collective.
std::vector<std::pair<Priority, std::unique_ptr<Hook>>> make_hooks(const Sections& run,
                                                                   const std::vector<HookRow>& rows = builtin_hooks(),
                                                                   const std::string& name = "");

/// "highest", ..., "lowest", in any case, or a number in [0, 100].
/// @throws ConfigError  neither; begins with `place`
Priority priority_of(const std::string& text, const std::string& place);

/// The key `train.hooks`, which describes the rows.
KeySpec hooks_key(const std::vector<HookRow>& rows);

}  // namespace lockstep::engine
