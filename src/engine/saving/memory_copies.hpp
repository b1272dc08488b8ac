// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Copies of the state of a run in the memory of hosts: the latest two, each in a MemorySlot, in a folder below /dev/shm
// that only their user can read, and there in a folder named after the host. The file COPIES among the checkpoints of
// the run names the folder, so that a run whose folder was deleted does not continue from them.
namespace lockstep::engine {

/// "/dev/shm/copies-lockstep-0123456789abcdef".
/// @param run_id  of RunOrigin
std::string memory_folder(const std::string& run_id);

/// Makes the folder, and that of this host in it, unless they exist.
/// @throws CheckpointError  it cannot be made, or belongs to another user
void make_memory_folder(const std::string& folder);

/// Notes where the copies of a run are, in its folder of checkpoints.
/// @throws CheckpointError  the note cannot be written
void note_memory_folder(const std::string& directory, const std::string& folder);
/// The noted folder; "" = none. Not collective.
std::string noted_memory_folder(const std::string& directory);
/// Removes the note, and the copies on this host.
void remove_memory_copies(const std::string& directory, const std::string& folder) noexcept;

/// Removes the checkpoint of memory_candidate, when it was read.
void remove_memory_checkpoints(const std::string& folder) noexcept;

/// The steps of the copies on this host, ascending.
std::vector<std::int64_t> memory_steps(const std::string& folder);
/// Empties the slots on this host with steps after `step`, from which a run has gone back.
void forget_later_copies(const std::string& folder, std::int64_t step);
/// The path of the slot for the copy of `step`: the other one of that with the latest earlier step. Empties those of
/// this step and of later ones.
std::string slot_for(const std::string& folder, std::int64_t step);
/// The bytes of the copy of `step` on this host, for another host.
/// @throws CheckpointError  there is none, or a later one has replaced it
std::vector<std::byte> copy_of(const std::string& folder, std::int64_t step);
/// Puts the bytes of a copy from another host into their slot.
/// @throws CheckpointError  there is not so much memory
void put_copy(const std::string& folder, std::int64_t step, std::span<const std::byte> bytes);

/// The newest copy that any host has, as a checkpoint in the folder of copies of every host, from which a run can
/// resume; none = there is no copy. Collective; the same on every rank.
/// @param directory  the run's folder of checkpoints
/// @throws CheckpointError  a host cannot get the copy or write the checkpoint; on every rank
std::optional<std::string> memory_candidate(const mpi::Communicator& world, const std::string& directory);

}  // namespace lockstep::engine
