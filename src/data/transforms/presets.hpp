// SPDX-License-Identifier: BSD-3-Clause
// The data augmentation of published recipes, as lines of the configuration.
#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

/// The lines for which a value of data.augmentation stands.
struct ExpandedPreset {
  std::vector<std::string> train;     ///< data.transform
  std::vector<std::string> val;       ///< data.val_transform
  std::vector<std::string> mix = {};  ///< train.mix
};

struct Preset {
  std::string name;
  std::string help;
  ExpandedPreset (*expand)(int image_size);
};

/// imagenet, torchvision2, timm_a1, timm_a2, timm_a3, deit, cifar, simclr, dino, swav.
const std::vector<Preset>& presets();

/// @param image_size  `data.image_size`: height and width of evaluated images
/// @throws ConfigError  the name is unknown
ExpandedPreset expand_preset(const std::string& name, int image_size);

}  // namespace lockstep::data
