// SPDX-License-Identifier: BSD-3-Clause
// The loops of mixup and cutmix, over the values of one sample.
#pragma once

#include <lockstep/data/image.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::data {

/// Copies the pixels of a box from one image to another one with the same layout.
/// @param strides  of channels, rows and columns, in values
void copy_box(const float* from, std::int64_t channels, const Box& box, const std::array<std::int64_t, 3>& strides,
              float* target);

}  // namespace lockstep::data
