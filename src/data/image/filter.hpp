// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

/// The filters of Pillow, as they are named there.
enum class ResizeFilter { nearest, box, bilinear, hamming, bicubic, lanczos };

/// nearest, box, bilinear, hamming, bicubic, lanczos.
const std::vector<std::string>& filter_names();
/// The filters of affine transforms: nearest, bilinear, bicubic.
const std::vector<std::string>& affine_filter_names();
/// @throws std::out_of_range  the name is unknown
ResizeFilter filter_named(const std::string& name);

}  // namespace lockstep::data
