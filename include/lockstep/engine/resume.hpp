// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/trainer.hpp>

#include <optional>
#include <string>

namespace lockstep::engine {

/// Finds and restores the checkpoint that `resume` asks for: none, auto, must, a step number or a path.
///
/// auto and must take the newest checkpoint that every rank can read: a damaged one is renamed to `.bad-step-...` and
/// the next older one tried, `resume.max_fallback` times. A folder with nothing but damaged ones is an error.
/// @param sections   key `resume`, and section `resume`
/// @param directory  the run's checkpoint folder
/// @return           the folder that was restored; none for a fresh start
/// Collective.
/// @throws ConfigError      `none`, but the folder already holds checkpoints
/// @throws CheckpointError  `must` or a step or path, and nothing there; nothing readable; or it does not fit the run.
///                          The run may then hold parts of a checkpoint, and must not be trained
std::optional<std::string> load_or_resume(Trainer& trainer, const Sections& sections, const std::string& directory);

}  // namespace lockstep::engine
