// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::families {

FamilyRow mlp_family();
FamilyRow cnn_family();
FamilyRow gpt_family();
FamilyRow convnext_family();
FamilyRow unet_family();
FamilyRow unet_classic_family();
FamilyRow fno_family();
FamilyRow torchscript_family();
FamilyRow resnet_family();
FamilyRow unet_resnet_family();
FamilyRow mobilenet_family();
FamilyRow efficientnet_family();
FamilyRow vit_family();

// Keys of several families.

inline constexpr double kMaxSize = 1 << 20;              // largest number that a key can have
inline constexpr const char* kOff = "0 0.0 false null";  // values of arguments, as JSON, that switch something off

KeySpec size_key(const std::string& name, const std::string& default_value, const std::string& help);
KeySpec hidden_key();
KeySpec dropout_key();
KeySpec drop_path_key();
KeySpec norm_key();
KeySpec width_key(const std::string& default_value = "64");
KeySpec depth_key(const std::string& default_value = "0");
KeySpec num_heads_key(const std::string& default_value = "0");
KeySpec embed_dim_key(const std::string& default_value = "0");
KeySpec mlp_ratio_key(const std::string& default_value);
KeySpec padding_key();
KeySpec head_key();
KeySpecs mobile_keys();
KeySpecs resnet_keys();

// Shapes of files.

/// The shape of a tensor, or null if there is none with so many dimensions.
const std::vector<std::int64_t>* find_shape(const TensorShapes& shapes, const std::string& name, std::size_t dims);
/// The number of tensors `before` + number + `after` with consecutive numbers from `first`.
std::int64_t count_of(const TensorShapes& shapes, const std::string& before, const std::string& after,
                      std::int64_t first = 0);

/// A list of numbers as a key has it: "3,4,6,3".
std::string list_text(const std::vector<std::int64_t>& numbers);
/// "true" or "false".
std::string flag_text(bool is_set);

}  // namespace lockstep::families
