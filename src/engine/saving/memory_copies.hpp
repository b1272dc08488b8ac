// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <string>
#include <vector>

// Copies of the state of a run in the memory of hosts. They are checkpoints of one file each, in a folder below
// /dev/shm that only their user can read. The file COPIES among the checkpoints of the run names the folder, so that a
// run whose folder was deleted does not continue from them.
namespace lockstep::engine {

/// "/dev/shm/copies-lockstep-0123456789abcdef".
/// @param run_id  of RunOrigin
std::string memory_folder(const std::string& run_id);

/// Makes the folder unless it exists.
/// @throws CheckpointError  it cannot be made, or belongs to another user
void make_memory_folder(const std::string& folder);

/// Notes where the copies of a run are, in its folder of checkpoints.
/// @throws CheckpointError  the note cannot be written
void note_memory_folder(const std::string& directory, const std::string& folder);
/// The noted folder; "" = none. Not collective.
std::string noted_memory_folder(const std::string& directory);
/// Removes the note, and the copies on this host.
void remove_memory_copies(const std::string& directory, const std::string& folder) noexcept;

/// The copies that a run can resume from, the newest first: those on this host if all ranks are here, else the newest
/// that any host has, which every host then gets. Collective; the same on every rank.
/// @param directory  the run's folder of checkpoints
/// @throws CheckpointError  a copy cannot be given to a host; on every rank
std::vector<std::string> memory_candidates(const mpi::Communicator& world, const std::string& directory);

}  // namespace lockstep::engine
