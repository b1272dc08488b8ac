// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/floats.hpp"

#include "core/numbers/at_level.hpp"

namespace lockstep::kernels {

namespace {

LOCKSTEP_INLINE void blend(const float* own, const float* partner, std::size_t count, double share, float* out) {
  const auto of_own = static_cast<float>(share);
  const auto of_partner = static_cast<float>(1.0 - share);
  for (std::size_t i = 0; i < count; ++i) out[i] = of_own * own[i] + of_partner * partner[i];
}

LOCKSTEP_INLINE void add_weighted(const float* in, std::size_t count, std::size_t step, const float* kernel, int size,
                                  float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = kernel[0] * in[i];
  for (int k = 1; k < size; ++k) {
    const float* const from = in + static_cast<std::size_t>(k) * step;
    const float weight = kernel[k];
    for (std::size_t i = 0; i < count; ++i) out[i] += weight * from[i];
  }
}

LOCKSTEP_INLINE void round_all(const float* in, std::size_t count, std::uint8_t* out) {
  constexpr float kShift = 8388608.0F;  // 2^23: numbers above it have no fraction
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(static_cast<int>((in[i] + kShift) - kShift));
}

}  // namespace

void blend_rows(const float* own, const float* partner, std::size_t count, double share, float* out) {
  at_level<blend>(own, partner, count, share, out);
}

void weighted_sums(const float* in, std::size_t count, std::size_t step, const float* kernel, int size, float* out) {
  at_level<add_weighted>(in, count, step, kernel, size, out);
}

void round_to_bytes(const float* in, std::size_t count, std::uint8_t* out) { at_level<round_all>(in, count, out); }

}  // namespace lockstep::kernels
