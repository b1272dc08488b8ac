// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "engine/state/resume_settings.hpp"

namespace lockstep::engine {

class Trainer;

/// Finds and restores the checkpoint that the settings request: none, auto, must, a step number or a path.
///
/// auto and must take the newest checkpoint that every rank can read: a damaged one is renamed to `.bad-step-...` and
/// the next older one tried, `max_fallback` times. A folder with nothing but damaged ones is an error.
/// @param directory   the run's checkpoint folder
/// @param config_ini  the configuration of the run, which is compared with that of the checkpoint; empty = it is not
/// @return            the folder that was restored; none for a fresh start
/// Collective.
/// @throws ConfigError      `none`, but the folder already holds checkpoints
/// @throws CheckpointError  `must` or a step or path, and nothing there; nothing readable; or it does not fit the run.
///                          The run may then hold parts of a checkpoint, and must not be trained
std::optional<std::string> load_or_resume(Trainer& trainer, const ResumeSettings& settings,
                                          const std::string& directory, const std::string& config_ini = "");

/// Counts the starts of a run from the step where it stands now, in the file STARTS of `directory`; one that a batch
/// system starts again and again, and that never comes to its next checkpoint, is ended.
/// @param restarts    on rank 0 = how often the batch system has started it again by itself; none = it has not, and
///                    nothing is counted
/// @param max_starts  starts from one step; 0 = any number
/// Collective.
/// @throws CheckpointError  this would be one more than `max_starts`; on every rank
void limit_starts(const mpi::Communicator& world, const std::string& directory, std::int64_t step,
                  std::optional<int> restarts, std::int64_t max_starts);

}  // namespace lockstep::engine
