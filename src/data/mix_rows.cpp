// SPDX-License-Identifier: BSD-3-Clause
#include "data/mix_rows.hpp"

#include "core/at_level.hpp"

namespace lockstep::data {

namespace {

LOCKSTEP_INLINE void blend(const float* own, const float* partner, std::size_t count, double share, float* out) {
  const auto of_own = static_cast<float>(share);
  const auto of_partner = static_cast<float>(1.0 - share);
  for (std::size_t i = 0; i < count; ++i) out[i] = of_own * own[i] + of_partner * partner[i];
}

}  // namespace

void blend_rows(const float* own, const float* partner, std::size_t count, double share, float* out) {
  at_level<blend>(own, partner, count, share, out);
}

void copy_box(const float* from, std::int64_t channels, const Box& box, const std::array<std::int64_t, 3>& strides,
              float* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      const std::int64_t begin = c * strides[0] + y * strides[1];
      for (std::int64_t x = box.left; x < box.left + box.width; ++x) {
        const std::int64_t i = begin + x * strides[2];
        to[i] = from[i];
      }
    }
  }
}

}  // namespace lockstep::data
