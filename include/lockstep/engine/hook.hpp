// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

inline constexpr double kMaxSteps = 1e12;  ///< twelve digits in the names of checkpoints

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
                                     ///< skipped_steps are not known yet, see HookReads::report
  double loss = 0;                   ///< mean over the samples of the global batch
  std::optional<double> grad_norm;   ///< norm of the gradients before clipping; none for a skipped step
  double lr = 0;                     ///< learning rate of the first parameter group
  std::int64_t samples = 0;          ///< global_batch_size
  double seconds = 0;                ///< wall time of this rank; on a GPU with the wait for an earlier step
  double data_seconds = 0;           ///< part of `seconds` spent waiting for data
  double loading_seconds = 0;        ///< time that the loader threads of this rank spent on samples meanwhile
  bool is_save_due = false;          ///< rank 0 requested a checkpoint
  bool is_evaluation_due = false;    ///< rank 0 requested an evaluation
  bool is_skipped = false;           ///< no parameter and no moment changed: gradients were not finite, or is_void
  bool is_void = false;              ///< no target of the global batch counts; the loss is NaN
  std::optional<double> loss_scale;  ///< factor on the losses; none = not scaled
  std::int64_t skipped_steps = 0;    ///< since the start of the run, including this one
  std::optional<std::int64_t> evaluations;  ///< evaluations of the loss, for closure rules
};

/// The end of a run: done = after its last step; stopped = earlier, to be resumed; ended = earlier, as requested by the
/// file STOP.
enum class Outcome { done, stopped, ended, failed };

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

/// The results of a step that a hook reads. Each costs time.
struct HookReads {
  /// Whether on_backward reads gradients. All gradients are then gathered on every rank.
  bool gradients = false;
  /// Whether after_step, after_epoch or between_steps of a step need its complete report, or that the step is not
  /// discarded afterwards (train.nonfinite), given the progress after the step. On a GPU the host then waits for the
  /// step. It always waits for the last step of an epoch and of the run. Empty = they never do. Not collective; ranks
  /// can differ.
  std::function<bool(const Progress&)> report = [](const Progress&) { return true; };

  static HookReads nothing() { return {.report = {}}; }
};

/// A hook: functions that are called at the events of training, in this order:
///
///     before_train
///     for every epoch, or what a resumed run or a return to a checkpoint has left of it:
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
/// The host does not wait for a GPU in a step with a report that no hook reads (HookReads::report): the values of that
/// step are known when the next one is queued. In a captured step (run.cuda_graphs), on_forward to on_update are called
/// when all work of their micro-batch is queued, with tensors that the next micro-batch overwrites. When a run returns
/// to a checkpoint (train.nonfinite), no event after before_agreement follows: the states of all hooks are restored,
/// RunView::roll_backs is raised, and before_epoch is next. Every rank calls every hook in the same order, so a hook
/// can use collectives. If a hook can throw on one rank only, use mpi::Communicator::all_or_throw; otherwise the
/// exception ends the job as the failure of one rank.
class Hook {
 public:
  /// @param reads   by default the report of every step
  /// @param states  the state of this hook in checkpoints, on every rank the same components: hook_state for a few
  ///                values that are equal on every rank, or a Stateful of its own. The hook outlives the run's use of
  ///                them, so they can refer to it
  explicit Hook(HookReads reads = {}, std::vector<std::shared_ptr<Stateful>> states = {})
      : reads_(std::move(reads)), states_(std::move(states)) {}
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;
  virtual ~Hook() = default;

  virtual void before_train(RunView&) {}
  virtual void before_epoch(RunView&) {}
  virtual void before_step(RunView&) {}
  /// Also called in evaluations (LastBatch::is_training is false), there without gradients. Autocast is active.
  virtual void on_forward(RunView&, const LastBatch&) {}
  /// Like on_forward, after the losses are computed.
  virtual void on_loss(RunView&, const LastBatch&) {}
  /// Called before the update. With HookReads::gradients, the gradients are available: averaged over ranks, not
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
  virtual void before_evaluation(RunView&) {}
  virtual void after_evaluation(RunView&, const Measured&) {}
  /// Called before a checkpoint: makes the values of states() equal on all ranks. Collective.
  virtual void before_save(RunView&) {}
  /// Called for every hook after before_train has returned. After Outcome::failed, do not use collectives, because
  /// other ranks can be at another place; exceptions are then logged, and the first error is rethrown.
  virtual void after_train(RunView&, Outcome) {}

  const HookReads& reads() const noexcept { return reads_; }
  const std::vector<std::shared_ptr<Stateful>>& states() const noexcept { return states_; }

 private:
  HookReads reads_;
  std::vector<std::shared_ptr<Stateful>> states_;
};

/// A hook, and its place among the others.
using PrioritizedHook = std::pair<Priority, std::unique_ptr<Hook>>;

/// A function for each event of a hook; empty ones are skipped.
struct Callbacks {
  std::function<void(RunView&)> before_train = {};
  std::function<void(RunView&)> before_epoch = {};
  std::function<void(RunView&)> before_step = {};
  std::function<void(RunView&, const LastBatch&)> on_forward = {};
  std::function<void(RunView&, const LastBatch&)> on_loss = {};
  std::function<void(RunView&, const LastBatch&)> on_backward = {};
  std::function<void(RunView&, const LastBatch&)> on_update = {};
  std::function<void(RunView&)> before_agreement = {};
  std::function<void(RunView&, const StepReport&)> on_measured = {};
  std::function<void(RunView&, const StepReport&)> after_step = {};
  std::function<void(RunView&)> after_epoch = {};
  std::function<void(RunView&, const StepReport&)> between_steps = {};
  std::function<void(RunView&)> before_evaluation = {};
  std::function<void(RunView&, const Measured&)> after_evaluation = {};
  std::function<void(RunView&)> before_save = {};
  std::function<void(RunView&, Outcome)> after_train = {};
  /// See Hook::states.
  std::vector<std::shared_ptr<Stateful>> states = {};
  /// Default: the report of every step if there is after_step or between_steps, else nothing.
  std::optional<HookReads> reads = {};
};

/// Creates a hook from functions, for a row of Registry::hooks. After after_train it releases its functions; later
/// calls do nothing.
std::unique_ptr<Hook> callback_hook(Callbacks callbacks);

/// The arguments of a row of the table of hooks, in addition to its options.
struct HookContext {
  const Sections& run;  ///< configuration of the run; outlives the hook
  std::string name;     ///< unique name, for states: that of the row, or "early_stopping#2" for the second hook of it
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
/// The key `train.hooks`, which describes the rows.
KeySpec hooks_key(const std::vector<HookRow>& rows);

/// Creates the hooks of `train.hooks` ("early_stopping,metric=val/accuracy,patience=3"), in order, with the priority of
/// their rows or of the option `priority` ("low", or 0 to 100).
/// @param name  only hooks with this name; empty = all
/// @throws ConfigError  a name or option is unknown (the message states similar names), or a row rejects a value
/// Not collective.
std::vector<PrioritizedHook> make_hooks(const Sections& run, const std::vector<HookRow>& rows = builtin_hooks(),
                                        const std::string& name = "");

/// "highest", ..., "lowest", in any case, or a number in [0, 100].
/// @throws ConfigError  neither; begins with `place`
Priority priority_of(const std::string& text, const std::string& place);

}  // namespace lockstep::engine
