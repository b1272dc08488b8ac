// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::models {

/// The role of a parameter in its model.
struct ParameterRole {
  std::string name;
  at::Tensor tensor;
  LayerKind kind = LayerKind::other;  ///< kind of the layer that it belongs to
  bool is_offset = false;             ///< whether the layer is inside a deformable convolution
  std::string same_as = {};           ///< earlier name of the same tensor; empty = none
  std::int64_t layers_after = 0;      ///< layers of layers_of that follow its own; 0 if it is in none
  bool is_undecayed = false;          ///< whether FamilyRow::undecayed contains it
};

/// The layers from input to output, as beginnings of parameter names, see FamilyRow::layers.
std::vector<std::vector<std::string>> layers_of(const Model& model);

/// Every parameter under every name, in the order of registration. Layers of torch::nn are known as those of models.
std::vector<ParameterRole> parameter_roles(const Model& model);

}  // namespace lockstep::models
