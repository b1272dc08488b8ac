// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"

// A run's state as the archive of a checkpoint, and back. See Stateful for what it consists of.
namespace lockstep::engine {

class DeviceCopies;
class Trainer;

/// The parts of a run that a checkpoint can omit.
struct CapturedParts {
  bool has_optimizer = true;  ///< moments and update counts of the optimizer, and the loss scale
  bool has_schedule = true;   ///< the rules of the schedule, and their state
};

/// Everything that a run needs to continue bit for bit. Collective; complete on ranks that write, empty elsewhere.
/// The arrays of parameters and buffers borrow the live tensors: use the archive before the next step. Tensors of a
/// device are copied behind the work that is queued, and arrive later: see Archive::await_arrival.
/// @param config_ini  the resolved configuration
/// @param parts       the same on every rank
/// @param copies      keeps the memory of these copies for the next capture; null = none is kept
checkpoints::Archive capture(Trainer& trainer, const std::string& config_ini, bool is_writer,
                             const CapturedParts& parts = {}, DeviceCopies* copies = nullptr);

/// The memory of the live run that a checkpoint's arrays can be read straight into, inside ParameterStore::write: those
/// who share parameters read a part each. None with options under which the next checkpoint, should this one turn out
/// to be damaged, would not overwrite all of it.
checkpoints::RestoreTargets restore_targets(Trainer& trainer, const RestoreOptions& options = {});

/// Puts the run into the archived state, in place. The comparison with the live run is complete before anything
/// changes, but for what was read straight into it; afterwards every rank compares what it holds with the archive.
/// Collective; every rank passes the same values.
/// @return  what was skipped because of the options, for the log
/// @throws CheckpointError  another model, optimizer or data set; lists what differs, on every rank
std::vector<std::string> restore(Trainer& trainer, const checkpoints::Archive& archive,
                                 const RestoreOptions& options = {});

/// How exactly a restored run reproduces the run that wrote the archive.
Reproducibility reproducibility_of(Trainer& trainer, const checkpoints::Archive& archive,
                                   const RestoreOptions& options = {});

/// Only parameters and buffers: what evaluation needs. Collective.
void restore_model(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                   const checkpoints::Archive& archive);

}  // namespace lockstep::engine
