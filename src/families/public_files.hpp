// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/interop/input_statistics.hpp"
#include "families/public_model.hpp"

/// Files that other libraries load strictly.
namespace lockstep::families {

/// The content of such a file.
struct PublicWeights {
  PublicModel model;
  std::vector<checkpoints::NamedArray> arrays = {};  ///< arrays with the names and shapes of the library
  std::vector<std::string> class_names = {};         ///< empty = unknown
  checkpoints::InputStatistics input = {};
};

/// The text of config.json in a folder of timm.
std::string timm_config(const PublicWeights& weights);

/// Writes a folder with config.json and model.safetensors, for timm.create_model("local-dir:PATH", pretrained=True).
/// It is there whole or not at all, and durable.
/// @throws CheckpointError  the path exists (refused), or the disk fails
void write_timm_folder(const std::string& path, const PublicWeights& weights);

/// Writes a state_dict for load_state_dict(strict=True). Its metadata are the call that creates the model
/// ("architecture") and, as JSON, "class_names", "mean" and "std".
/// @param kind  safetensors or pytorch
/// @throws CheckpointError  as write_foreign
void write_state_dict(const std::string& path, checkpoints::ExportKind kind, const PublicWeights& weights);

}  // namespace lockstep::families
