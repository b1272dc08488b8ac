// SPDX-License-Identifier: BSD-3-Clause
#include "data/mix_rows.hpp"

namespace lockstep::data {

void copy_box(const float* from, std::int64_t channels, const Box& box, const std::array<std::int64_t, 3>& strides,
              float* target) {
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      const std::int64_t begin = c * strides[0] + y * strides[1];
      for (std::int64_t x = box.left; x < box.left + box.width; ++x) {
        const std::int64_t i = begin + x * strides[2];
        target[i] = from[i];
      }
    }
  }
}

}  // namespace lockstep::data
