// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::trainer {

/// The environment of a run, for env.json: ranks, hosts, GPUs, versions, and the environment variables that steer MPI,
/// slurm, OpenMP and Lockstep. Nothing else of the environment, which may hold secrets.
/// @param hosts  their names, each once
/// @param gpus   likewise; empty = the CPU
std::string environment_json(int world_size, const std::vector<std::string>& hosts,
                             const std::vector<std::string>& gpus);

/// The most important of it in one line, for the log.
std::string environment_line();

/// The versions of the libraries, the level of processors in use and the GPU, if there is one, one per line. Opens the
/// GPU.
std::string version_lines();

}  // namespace lockstep::trainer
