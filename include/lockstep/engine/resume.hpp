// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/trainer.hpp>

#include <optional>
#include <string>

namespace lockstep::engine {

/// Finds and restores the checkpoint that `resume` asks for: none, auto, must, a step number or a path.
///
/// @param resume     value of the key `resume`
/// @param directory  the run's checkpoint folder
/// @return           the folder that was restored; none for a fresh start
/// Collective.
/// @throws ConfigError      `none`, but the folder already holds checkpoints
/// @throws CheckpointError  `must` or a step or path, and nothing there; or the checkpoint does not fit
std::optional<std::string> load_or_resume(Trainer& trainer, const std::string& resume, const std::string& directory);

}  // namespace lockstep::engine
