// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::trainer {

/// What a run ran on, for env.json: ranks, hosts, versions, time, and the environment variables that steer MPI, slurm,
/// OpenMP and Lockstep. Nothing else of the environment, which may hold secrets.
std::string environment_json(int world_size, const std::vector<std::string>& hosts);

/// The most important of it in one line, for the log.
std::string environment_line();

/// The versions of the libraries and the level of processors in use, one per line.
std::string version_lines();

}  // namespace lockstep::trainer
