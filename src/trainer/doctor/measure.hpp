// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <string>

#include "mpi/process/topology.hpp"
#include "trainer/doctor/facts.hpp"

namespace lockstep::trainer {

/// Measures memory, products and messages of this rank, all ranks at once, for about a second. Collective.
/// @param threads  computing threads of LibTorch
void measure_speed(const mpi::Communicator& world, int threads, DoctorFacts& facts);

/// Measures the bus bandwidth of all_reduce over the ranks of each host, and over the first ranks of the hosts.
/// Collective.
void measure_all_reduce(const mpi::Communicator& world, const mpi::Topology& topology, DoctorFacts& facts);

/// Writes a file to a folder, makes it durable, reads it, and looks for that of rank 0; removes it. Makes the folder if
/// there is none, and removes it again. Collective.
void try_files(const mpi::Communicator& world, const std::string& folder, FileFacts& facts);

}  // namespace lockstep::trainer
