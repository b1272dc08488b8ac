// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/families/family.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::engine {

/// A tensor of a file for initial values.
struct StoredTensor {
  const checkpoints::Array* array = nullptr;
  std::vector<std::int64_t> shape = {};  ///< shape as our model would have it
};

using StoredTensors = std::map<std::string, StoredTensor>;  // keys are the names in the model

/// How the names in a file become ours.
struct NameRules {
  Renames renames = {};
  std::string library = "auto";                 ///< library of the names: auto, torchvision or timm
  const families::FamilyRow* family = nullptr;  ///< family of the model, which maps the names; null = unknown
  std::string weights = "auto";                 ///< auto, trained or average
};

/// The tensors of every group of a file in every form that their names can have: as they are, without the prefixes of
/// wrappers, and by the maps of `rules.family`. Groups are in the order in which they are looked for.
std::vector<StoredTensors> tensor_forms(const checkpoints::Archive& archive, const NameRules& rules);

/// The tensors that a file contains for a model.
struct FoundTensors {
  StoredTensors tensors = {};
  std::string group = "";   ///< path of their group in the file
  bool is_average = false;  ///< they are averaged weights
};

/// The tensors of the group of a file that has most of the model's names. Of several such groups, the averaged weights
/// or those under the usual keys of training scripts come first. Parts that wrappers of Python add to names are
/// removed, and the names of another library are mapped, if the result fits better.
/// @param is_known  whether the model has a parameter or buffer of that name
/// @return  no tensors if `rules.weights` are requested but the file has none
FoundTensors find_tensors(const checkpoints::Archive& archive, const NameRules& rules,
                          const std::function<bool(const std::string&)>& is_known);

}  // namespace lockstep::engine
