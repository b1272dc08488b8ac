// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <chrono>
#include <optional>

#include "config/config.hpp"
#include "engine/session.hpp"

// The actions that a run does because a batch system started it.
namespace lockstep::trainer {

/// Sets resume=auto where slurm has requeued the job, unless the user gave `resume`. Collective.
void resume_if_requeued(const mpi::Communicator& world, config::Config& config);

/// Says which slurm job this is and how often it was requeued; warns when slurm's signals do not reach the ranks. Not
/// collective; for rank 0.
void log_batch_job();

/// How often slurm has requeued the job; none outside of slurm. For rank 0. Not collective.
std::optional<int> restarts();

/// When the run has to be over: by train.time_limit, else by slurm's own limit. On rank 0; none elsewhere, and where
/// there is no limit. Collective.
/// @param started  from when train.time_limit counts
/// @throws ConfigError  train.time_limit is no time span, on every rank
std::optional<engine::TimeLimit> time_limit(const mpi::Communicator& world, const Section& train,
                                            std::chrono::steady_clock::time_point started);

}  // namespace lockstep::trainer
