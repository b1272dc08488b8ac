// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::models {

/// With more, general matrix products are as fast.
inline constexpr std::int64_t kMaxSamples = 64;

/// Two matrices with a row per sample, both contiguous.
struct OuterProduct {
  const float* left;     ///< [samples, rows]
  const float* right;    ///< [samples, columns]
  std::int64_t samples;  ///< at most kMaxSamples: so few that the product is bound by writing its result
  std::int64_t rows;
  std::int64_t columns;
};

/// result [rows, columns] = left^T right. Each element is summed over the samples in their order, so it has the same
/// bits wherever it lies and whatever the processor's vectors are.
void write_outer_product(const OuterProduct& product, float* result);

}  // namespace lockstep::models
