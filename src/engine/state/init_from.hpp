// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>

#include <string>
#include <vector>

#include "engine/state/resume_settings.hpp"

namespace lockstep::engine {

class Strategy;

/// Section `init`: where initial values come from.
struct InitSettings {
  std::vector<std::string> files = {};  ///< later ones win; empty = the model's own initial values
  std::string weights = "auto";         ///< of a checkpoint: auto, trained or average
  std::string weights_cited_as = "";    ///< that key in messages
  bool is_partial = false;              ///< take what fits by name and shape
  bool resets_head = false;             ///< the last layer keeps its own initial values
  bool adapts_channels = false;         ///< of the first convolution
  bool resizes_positions = true;        ///< of a grid of patches
  std::string family = "auto";          ///< library of the names: auto, torchvision or timm
  std::string model = "";               ///< value of model.name, which selects the map of names
  Renames renames = {};                 ///< of names in the file

  static KeySpecs keys();
  /// @throws ConfigError  a value that its key does not accept
  static InitSettings from(const Section& init);
};

/// Takes initial parameters and buffers from files, if the settings name some: a Lockstep checkpoint, or a safetensors,
/// PyTorch, npz or HDF5 file. See find_tensors for how tensors of a file are found. Values of another floating type
/// are converted. A missing counter num_batches_tracked is 0.
///
/// Collective; every rank reads the file.
/// @return  what was skipped because the settings take a part, for the log
/// @throws CheckpointError  it cannot be read, or holds other names or shapes than the model: all of them, on every
/// rank
std::vector<std::string> init_from(Strategy& strategy, const InitSettings& settings);
/// With the settings of the sections `init` and `model`.
std::vector<std::string> init_from(Strategy& strategy, const Sections& sections);

}  // namespace lockstep::engine
