// SPDX-License-Identifier: BSD-3-Clause
// Published recipes as lines of the configuration.
#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

/// The lines and values for which a preset stands.
struct ExpandedPreset {
  std::vector<std::string> train;     ///< data.transform
  std::vector<std::string> val;       ///< data.val_transform
  std::vector<std::string> mix = {};  ///< train.mix
  double label_smoothing = 0;         ///< loss.label_smoothing
  std::string loss = {};              ///< loss.name; empty = unchanged
  int repeats = 1;                    ///< data.repeats
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
