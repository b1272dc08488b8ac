// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/record.hpp>
#include <lockstep/engine/progress.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
  /// be elsewhere; what is thrown then is logged, and the first error goes on.
  virtual void after_train(RunView&, Outcome) {}

  /// Whether on_backward reads gradients: all of them are then gathered on every rank before it, which takes time.
  virtual bool reads_gradients() const { return false; }

  /// A checkpoint is about to be made: what save_state puts is brought to where all ranks have it alike. Collective.
  virtual void before_save(RunView&) {}
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
