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

  /// The part seed of the run that is done, in [0, 1): of the coming step, and 1 where none is to come.
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
  std::optional<double> loss_scale;         ///< what its losses were multiplied by; none = they are not scaled
  std::int64_t skipped_steps = 0;           ///< since the run began, this one included
  std::optional<std::int64_t> evaluations;  ///< of the loss, by an optimizer that needs several
};

/// How a run ended: with its last step; before it, to be continued; before it, with no more to come (file STOP).
enum class Outcome { done, stopped, ended, failed };

}  // namespace lockstep::engine

namespace lockstep::checkpoints {
class Archive;
}

namespace lockstep::engine {

class Stateful;
struct LastBatch;
struct RunView;

/// What has happened to the micro_batch at hand within a step.
enum class StepEvent { forward, loss, backward, update };

/// What the last evaluation gave, the same on every rank.
struct Measured {
  std::int64_t step = -1;                              ///< -1 = there was none
  std::vector<std::pair<std::string, double>> values;  ///< the real numbers of its records, "val/loss" and so on
};

/// Receives records on rank 0.
using Reporter = std::function<void(const Record&)>;

/// Order of hooks at one moment: smaller runs first. Equal ones run in order of registration.
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

/// One job at the named moments of training, in this order:
///
///     before_train
///     for every epoch, or what a resumed run has left of it:
///       before_epoch
///       for every step:
///         before_step
///         for every micro_batch: on_forward, on_loss; of the last one, too: on_backward, on_update
///         before_agreement
///         after_step
///         after_epoch, when the step was the epoch's last
///         between_steps: evaluation (before_evaluation, its forwards, after_evaluation), then whatever goes by it,
///         then checkpoints (before_save)
///     after_train
///
/// (and before_roll_back, after_roll_back instead of what follows before_agreement, when a run goes back). Every rank
/// calls every hook in the same order, so a hook may use collectives. What a hook throws on one rank must be agreed on
/// first (mpi::Communicator::all_or_throw), or ends the job like any failure of one rank.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual void before_train(RunView&) {}
  virtual void before_epoch(RunView&) {}
  virtual void before_step(RunView&) {}
  /// In evaluations too: LastBatch::is_training tells. With autocast, and in evaluations without gradients.
  virtual void on_forward(RunView&, const LastBatch&) {}
  /// As on_forward, when the losses are known.
  virtual void on_loss(RunView&, const LastBatch&) {}
  /// Before the update. Gradients can be read where reads_gradients asked for them: averaged over ranks, not clipped,
  /// and multiplied by LastBatch::loss_scale.
  virtual void on_backward(RunView&, const LastBatch&) {}
  virtual void on_update(RunView&, const LastBatch&) {}
  /// The step is computed: what is requested here, all ranks hear of with this step.
  virtual void before_agreement(RunView&) {}
  virtual void after_step(RunView&, const StepReport&) {}
  virtual void after_epoch(RunView&) {}
  /// What a checkpoint at this step is to hold has happened before Priority::very_low of this moment.
  virtual void between_steps(RunView&, const StepReport&) {}
  /// All ranks agreed to go back to the last checkpoint: see NonfiniteHook. What is under way is finished first.
  virtual void before_roll_back(RunView&) {}
  /// The state is that of the checkpoint, load_state was called.
  virtual void after_roll_back(RunView&) {}
  virtual void before_evaluation(RunView&) {}
  virtual void after_evaluation(RunView&, const Measured&) {}
  /// Of every hook whose before_train returned. After Outcome::failed no collective may be used, since other ranks may
  /// be elsewhere; what is thrown then is logged, and the first error continues.
  virtual void after_train(RunView&, Outcome) {}

  /// Whether on_backward reads gradients: all of them are then gathered on every rank before it, which takes time.
  virtual bool reads_gradients() const { return false; }

  /// A checkpoint is about to be made: what save_state puts is brought to where all ranks have it alike. Collective.
  virtual void before_save(RunView&) {}
  /// The name under which checkpoints hold what this hook has learned, its own in a run; empty = it has learned
  /// nothing.
  virtual std::string state_name() const { return ""; }
  /// Puts that, the same on every rank, below `group`. On ranks that write checkpoints; not collective.
  virtual void save_state(checkpoints::Archive&, const std::string& /*group*/) const {}
  /// Takes it back before training, where the checkpoint has the group. On every rank; not collective.
  /// @throws CheckpointError  not what save_state has put there
  virtual void load_state(const checkpoints::Archive&, const std::string& /*group*/) {}
  /// Components of checkpoints that the hook adds to those seed of the run, the same ones on every rank: see Stateful.
  virtual std::vector<std::shared_ptr<Stateful>> states() const { return {}; }
};

/// What a hook of the table is made from, beside its options.
struct HookContext {
  const Sections& run;  ///< its whole configuration; outlives the hook
  std::string name;     ///< among the run's hooks: the row's, "early_stopping#2" for the second one. For state_name
};

/// A row of the table of hooks. A user's program adds rows to Registry::hooks.
struct HookRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of the options
  Priority priority = Priority::normal;
  /// Not collective. @throws ConfigError  options that do not fit each other
  std::function<std::unique_ptr<Hook>(const Section& options, const HookContext& context)> make;
};

/// early_stopping, precise_bn, sync_buffers, freeze, memory, profiler, parameter_statistics, nan_output, run_time.
const std::vector<HookRow>& builtin_hooks();

/// The hooks that `train.hooks` names ("early_stopping,metric=val/accuracy,patience=3"), in its order, at the priority
/// of their rows or of an option `priority` ("low", or 0 to 100).
/// @throws ConfigError  an unknown row or option, with the nearest known ones, or what a row refuses
/// Not collective.
std::vector<std::pair<Priority, std::unique_ptr<Hook>>> make_hooks(const Sections& run,
                                                                   const std::vector<HookRow>& rows = builtin_hooks());

/// "highest", ..., "lowest", in any case, or a number in [0, 100].
/// @throws ConfigError  neither; begins with `place`
Priority priority_of(const std::string& text, const std::string& place);

/// The key `train.hooks`, which describes the rows.
KeySpec hooks_key(const std::vector<HookRow>& rows);

}  // namespace lockstep::engine
