// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/interop/input_statistics.hpp"

namespace lockstep::families {

// The counterparts of trained models in other libraries.

/// The names of the libraries that have models of these families, in alphabetical order.
std::vector<std::string> library_names(const std::vector<FamilyRow>& families);

/// The counterpart of a trained model.
/// @throws CheckpointError  incompatible: the library lacks this model, in one sentence
PublicModel public_model(const std::string& library, const TrainedModel& model,
                         const std::vector<FamilyRow>& families = builtin_families());

/// The call that creates the model: "torchvision.models.resnet50(num_classes=10)".
std::string python_call(const PublicModel& model);

/// The names of parameters and buffers as the library has them, in its order.
struct PublicName {
  std::string ours;
  std::string theirs;
  NameOperation operation = NameOperation::same;
};
/// @param ours  in the order of our model
/// @throws CheckpointError  incompatible: a parameter has no counterpart
std::vector<PublicName> public_names(const PublicModel& model, const std::vector<std::string>& ours);

// Files that other libraries load strictly.

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
