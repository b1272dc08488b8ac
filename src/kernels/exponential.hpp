// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

/// e^x for x in [-87, 0], for loops that the compiler turns into vector instructions: 2^n e^r with |r| <= ln 2 / 2, and
/// the Taylor polynomial of e^r.
LOCKSTEP_INLINE float exponential(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693145752F;  // few digits, so that n * kLn2High is exact
  constexpr float kLn2Low = 1.42860677e-6F;
  constexpr float kRounding = 12582912.0F;  // 1.5 * 2^23: adding it leaves no digits behind the point
  const float n = (x * kLog2E + kRounding) - kRounding;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  return sum * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

}  // namespace lockstep::kernels
