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
  std::string file = "";              ///< empty = the model's own initial values
  std::string weights = "auto";       ///< of a checkpoint: auto, trained or average
  std::string weights_cited_as = "";  ///< that key in messages
  bool is_partial = false;            ///< take what fits by name and shape
  Renames renames = {};               ///< of names in the file

  static KeySpecs keys();
  /// @throws ConfigError  a value that its key does not accept
  static InitSettings from(const Section& init);
};

/// Takes initial parameters and buffers from a file, if the settings name one: a Lockstep checkpoint, or a safetensors,
/// PyTorch, npz or HDF5 file. Of a file with groups (a .pt with "model" and "optimizer") the one counts that has most
/// of the model's names; of a checkpoint with an average of weights, the settings choose. Values of another floating
/// type are converted.
///
/// Collective; every rank reads the file.
/// @return  what was skipped because the settings take a part, for the log
/// @throws CheckpointError  it cannot be read, or holds other names or shapes than the model: all of them, on every
/// rank
std::vector<std::string> init_from(Strategy& strategy, const InitSettings& settings);
/// With the settings of section `init`.
std::vector<std::string> init_from(Strategy& strategy, const Section& init);

}  // namespace lockstep::engine
