// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/mpi/topology.hpp>

#include <cstdint>

// What is set once for the whole process, from section `run`.
namespace lockstep::engine {

/// The soft limit of open files that is asked for: at least `wanted`, as far as the hard limit goes; never less than it
/// was.
std::uint64_t open_files_limit(std::uint64_t soft, std::uint64_t hard, std::uint64_t wanted);

/// Compute threads of this rank: run.threads, else OMP_NUM_THREADS, else this rank's part of the processors.
/// With lanes 1, since how many threads add up a sum shows in its bits.
int set_threads(const Section& run, const mpi::Topology& topology, bool has_lanes);

/// Open files (run.nofile_limit), and whether LibTorch may choose kernels that differ from run to run
/// (run.deterministic, run.cudnn_benchmark).
/// @throws ConfigError  run.compile: there is nothing that compiles
void set_up_process(const Section& run, bool is_root);

}  // namespace lockstep::engine
