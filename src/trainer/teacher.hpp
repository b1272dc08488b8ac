// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "config/config.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

/// The teacher of loss.name=distill, where distill.from names a run or one of its checkpoints: replaces it by the path
/// of the checkpoint, and sets distill.model to the stored model unless it is given. A run that resumes with its
/// resolved configuration then has the same teacher. Collective.
/// @throws ConfigError      see engine::has_teacher; on every rank
/// @throws CheckpointError  there is no checkpoint, or it cannot be read; on every rank
void settle_teacher(const CommandJob& job, config::Config& config);

}  // namespace lockstep::trainer
