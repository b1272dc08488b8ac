// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/record.hpp>

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

class Stateful;
class Trainer;
struct LastBatch;

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

/// What has been committed in this run.
struct Saves {
  std::int64_t last_step = -1;  ///< -1: nothing yet
  double longest_seconds = 0;   ///< from the snapshot to the commit
};

/// What the last evaluation gave, the same on every rank.
struct Measured {
  std::int64_t step = -1;                              ///< -1: there was none
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
/// calls every hook in the same order, so a hook may use collectives. What a hook throws on one rank must be
/// agreed on first (mpi::Communicator::together), or ends the job like any failure of one rank.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual void before_train(Trainer&) {}
  virtual void before_epoch(Trainer&) {}
  virtual void before_step(Trainer&) {}
  /// In evaluations too: LastBatch::is_training tells. With autocast, and in evaluations without gradients.
  virtual void on_forward(Trainer&, const LastBatch&) {}
  /// As on_forward, when the losses are known.
  virtual void on_loss(Trainer&, const LastBatch&) {}
  /// Before the update. Gradients can be read where reads_gradients asked for them: averaged over ranks, not clipped,
  /// and multiplied by LastBatch::loss_scale.
  virtual void on_backward(Trainer&, const LastBatch&) {}
  virtual void on_update(Trainer&, const LastBatch&) {}
  /// The step is computed: what is asked of the trainer here, all ranks hear of with this step.
  virtual void before_agreement(Trainer&) {}
  virtual void after_step(Trainer&, const StepReport&) {}
  virtual void after_epoch(Trainer&) {}
  /// What a checkpoint at this step is to hold has happened before Priority::very_low of this moment.
  virtual void between_steps(Trainer&, const StepReport&) {}
  /// All ranks agreed to go back to the last checkpoint: see NonfiniteHook. What is under way is finished first.
  virtual void before_roll_back(Trainer&) {}
  /// The state is that of the checkpoint, load_state was called.
  virtual void after_roll_back(Trainer&) {}
  virtual void before_evaluation(Trainer&) {}
  virtual void after_evaluation(Trainer&, const Measured&) {}
  /// Of every hook whose before_train returned. After Outcome::failed no collective may be used, since other ranks may
  /// be elsewhere; what is thrown then is logged, and the first error goes on.
  virtual void after_train(Trainer&, Outcome) {}

  /// Whether on_backward reads gradients: all of them are then gathered on every rank before it, which takes time.
  virtual bool reads_gradients() const { return false; }

  /// A checkpoint is about to be made: what save_state puts is brought to where all ranks have it alike. Collective.
  virtual void before_save(Trainer&) {}
  /// The name under which checkpoints hold what this hook has learned, its own in a run; empty: it has learned nothing.
  virtual std::string state_name() const { return ""; }
  /// Puts that, the same on every rank, below `group`. On ranks that write checkpoints; not collective.
  virtual void save_state(checkpoints::Archive&, const std::string& /*group*/) const {}
  /// Takes it back before training, where the checkpoint has the group. On every rank; not collective.
  /// @throws CheckpointError  not what save_state has put there
  virtual void load_state(const checkpoints::Archive&, const std::string& /*group*/) {}
  /// Components of checkpoints that the hook adds to those of the run, the same ones on every rank: see Stateful.
  virtual std::vector<std::shared_ptr<Stateful>> states() const { return {}; }
};

}  // namespace lockstep::engine
