// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <utility>
#include <vector>

#include "engine/state/model_tensors.hpp"

namespace lockstep::embed {

/// All parameters and buffers, in the order of the model.
inline std::vector<engine::NamedTensor> state_of(const models::Model& model) {
  std::vector<engine::NamedTensor> all = engine::parameters_of(model);
  for (engine::NamedTensor& buffer : engine::buffers_of(model)) all.push_back(std::move(buffer));
  return all;
}

}  // namespace lockstep::embed
