// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::checkpoints {

/// How stored images become the input of a model, in the terms of timm.
struct InputStatistics {
  std::vector<double> mean = {};  ///< mean of each channel, of pixels in [0, 1]; empty = unknown
  std::vector<double> deviation = {};
  std::string interpolation = {};         ///< "bilinear"; empty = images are not resized
  double crop_fraction = 1;               ///< side of the crop / short side of the resized image
  std::string crop_mode = "center";       ///< or "squash": both sides are resized, whatever the ratio is
  std::vector<std::string> remarks = {};  ///< remarks: what these terms do not describe, one sentence each
};

/// The statistics that a run measured for `normalize,mean=auto`: one number for each channel.
struct MeasuredStatistics {
  std::vector<double> mean = {};
  std::vector<double> deviation = {};
};

/// The transforms of evaluations in a configuration.
/// @param config    values by key, such as "data.val_transform"; lines of repeatable keys are separated by line ends
/// @param channels  of the images
/// @param measured  empty = unknown
InputStatistics input_statistics(const std::map<std::string, std::string>& config, std::int64_t channels,
                                 const MeasuredStatistics& measured = {});

}  // namespace lockstep::checkpoints
