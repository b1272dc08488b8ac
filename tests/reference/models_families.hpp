// SPDX-License-Identifier: BSD-3-Clause
// One function for each file of model cases: how our program builds the model of a case.
#pragma once

#include <algorithm>

#include "families/names.hpp"
#include "reference/models_golden.hpp"

namespace lockstep::testing::reference {

/// The rows of names of torchvision.
inline const std::vector<families::NameRow>& torchvision_names(const std::string& family) {
  const auto found = std::ranges::find(families::builtin_families(), family, &families::FamilyRow::name);
  return families::find_library(*found, "torchvision")->names;
}

/// The names and shapes that torchvision has for our entries, in its order.
std::vector<StateEntry> torchvision_convnext_state(const std::vector<StateEntry>& ours);
std::vector<StateEntry> torchvision_vit_state(const std::vector<StateEntry>& ours);

GoldenModel convnet_model(const Json& one_case);
GoldenModel resnet_model(const Json& one_case);
GoldenModel unet_model(const Json& one_case);
GoldenModel vit_model(const Json& one_case);

}  // namespace lockstep::testing::reference
