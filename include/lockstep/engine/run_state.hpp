// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/trainer.hpp>

#include <string>

// Where tensors meet checkpoint archives. checkpoints/FORMAT.md names every path.
namespace lockstep::engine {

/// Everything a run needs to continue bit for bit. Collective; complete on rank 0, empty elsewhere.
/// The arrays of parameters and buffers borrow the live tensors: use the archive before the next step.
/// @param config_ini  the resolved configuration
checkpoints::Archive capture(Trainer& trainer, const std::string& config_ini);

/// Puts the run into the archived state, in place. The comparison with the live run is complete before anything
/// changes. Collective; every rank brings the same archive.
/// @throws CheckpointError  another model, optimizer or data set; lists what differs, on every rank
void restore(Trainer& trainer, const checkpoints::Archive& archive);

/// Only parameters and buffers: what evaluation needs.
void restore_model(Strategy& strategy, const checkpoints::Archive& archive);

}  // namespace lockstep::engine
