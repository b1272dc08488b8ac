// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/interop/timm_config.hpp"

namespace lockstep::checkpoints {

/// A model of a folder or file in terms of our keys.
struct ModelDescription {
  std::string name;  ///< value of model.name
  std::vector<std::pair<std::string, std::string>> keys =
      {};                                       ///< other keys of section model that differ: "depth", "6"
  std::int64_t classes = 0;                     ///< 0 = the model has no head
  std::vector<std::string> class_names = {};    ///< empty = not stated
  std::optional<PretrainedImages> images = {};  ///< nothing = not stated
};

/// The model of a folder of timm.
/// @param models  names of our models
/// @throws CheckpointError  none of them is this architecture (the message lists those that are known), or it has an
///                          argument that our model does not have
ModelDescription describe_model(const TimmConfig& config, const std::vector<std::string>& models);

/// Names and shapes of the tensors of a file, by our names.
using TensorShapes = std::map<std::string, std::vector<std::int64_t>>;

/// The model with these tensors: a ResNet, a ViT (64 features per head, as all published ones), a ConvNeXt or a U-Net.
/// @return  nothing if they belong to no model of these families
std::optional<ModelDescription> identify_model(const TensorShapes& shapes);

}  // namespace lockstep::checkpoints
