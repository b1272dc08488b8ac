// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/interop/timm_config.hpp"

namespace lockstep::families {

/// A model of a folder or file in terms of our keys.
struct ModelDescription {
  std::string name;                           ///< value of model.name
  ModelKeys keys = {};                        ///< other keys of section `model` that differ: {"depth", "6"}
  std::int64_t classes = 0;                   ///< 0 = the model has no head
  std::vector<std::string> class_names = {};  ///< empty = not stated
  std::optional<checkpoints::PretrainedImages> images = {};  ///< nothing = not stated
};

/// The model of a folder of timm.
/// @throws CheckpointError  no family has this architecture (the message lists those that are known), or it has an
///                          argument that our model does not have
ModelDescription describe_model(const checkpoints::TimmConfig& config,
                                const std::vector<FamilyRow>& families = builtin_families());

/// The model of a family that has these tensors, by our names.
/// @return  nothing if they belong to no model of the family
std::optional<ModelDescription> identify_model(const FamilyRow& family, const TensorShapes& shapes);

}  // namespace lockstep::families
