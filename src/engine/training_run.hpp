// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <memory>
#include <string>

#include "engine/loop/trainer.hpp"
#include "engine/session.hpp"
#include "engine/setup/composition.hpp"
#include "engine/state/resume_settings.hpp"

namespace lockstep::engine {

/// A training that is set up: data, model, optimizers, hooks and the restored state.
class TrainingRun {
 public:
  /// Collective.
  /// @param world    the ranks that train together; outlives the training
  /// @param request  without a checkpoint_directory nothing is saved or resumed
  /// @throws  an Error of any kind
  TrainingRun(const mpi::Communicator& world, TrainRequest request);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains to the end, as `train` does. Collective.
  Outcome run();

  /// Continues from a checkpoint, between two steps. Collective.
  /// @param source  as the key `resume`
  /// @throws CheckpointError  there is none, or it cannot be used; on every rank
  void resume(const std::string& source);

  Trainer& trainer() noexcept { return *trainer_; }
  Composition& composition() noexcept { return *composition_; }

 private:
  void add_hooks();
  void restore_or_init();
  bool roll_back();
  void restore(const std::string& source);

  const mpi::Communicator& world_;
  TrainRequest request_;
  ResumeSettings resume_;
  std::unique_ptr<Composition> composition_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace lockstep::engine
