// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "engine/setup/init_from.hpp"
#include "engine/state/init_names.hpp"

// Which tensors of a file fit which tensors of a model.
namespace lockstep::engine {

/// Parameters and buffers of a model by name.
using LiveTensors = std::map<std::string, at::Tensor>;

/// The treatment of a tensor of the file.
enum class Fit {
  same,       ///< it is copied, and converted if its floating type differs
  channels,   ///< it is adapted to the number of input channels
  positions,  ///< it is resized to the grid of patches
  none,       ///< it cannot be taken
};

Fit fit_of(const std::string& name, const StoredTensor& saved, const at::Tensor& live, const models::Anatomy& anatomy,
           const InitSettings& settings);

/// The tensors that are missing, not in the model, or of another shape or type.
InitDifferences differences_of(const StoredTensors& stored, const LiveTensors& live, const models::Anatomy& anatomy,
                               const InitSettings& settings);

/// Whether the name is inside of the module.
bool is_below(const std::string& name, const std::string& module);
/// A counter of batches, which older files do not have.
bool is_counter(const std::string& name);

}  // namespace lockstep::engine
