// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/transform.hpp>

#include <string>
#include <vector>

namespace lockstep::data {

/// The lines of data.val_transform that belong to those of data.transform. Lines without random numbers are kept. A
/// random_resized_crop or multi_crop becomes resize and center_crop, with the sizes of torchvision's recipe (256 for a
/// crop of 224), and random_crop becomes center_crop. Other random lines are left out.
/// @param key  start of messages
/// @throws ConfigError  a transform is unknown, or a random transform of a program changes the size of images
std::vector<std::string> evaluation_lines(const std::vector<std::string>& training,
                                          const std::vector<TransformRow>& rows, const std::string& key);

}  // namespace lockstep::data
