// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>

#include <string>
#include <vector>

namespace lockstep::engine {

class Strategy;

/// Takes initial parameters and buffers from the file that key `init.from` names, if it names one: a Lockstep
/// checkpoint, or a safetensors, PyTorch, npz or HDF5 file. Of a file with groups (a .pt with "model" and "optimizer")
/// the one counts that has most of the model's names; of a checkpoint with an average of weights init.weights chooses.
/// Values of another floating type are converted.
///
/// Collective; every rank reads the file.
/// @param init  section `init`: from, weights, partial, rename
/// @return      what was passed over, with init.partial, for the log
/// @throws CheckpointError  it cannot be read, or holds other names or shapes than the model: all of them, on every
/// rank
std::vector<std::string> init_from(Strategy& strategy, const Section& init);

}  // namespace lockstep::engine
