// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::kernels {

/// General matrix products are as fast with more.
inline constexpr std::int64_t kMaxSamples = 64;

/// Two matrices with a row per sample, both contiguous.
struct OuterProduct {
  const float* left;     ///< [samples, rows]
  const float* right;    ///< [samples, columns]
  std::int64_t samples;  ///< <= kMaxSamples: so few that writing the result takes most of the time
  std::int64_t rows;
  std::int64_t columns;
};

/// The right matrix, in the order in which it is read.
std::vector<float> outer_product_panels(const OuterProduct& product);

/// The number of rows below which a second thread costs more than it saves.
std::int64_t outer_product_grain(const OuterProduct& product);

/// result [rows, columns] = left^T right. Each element is summed over the samples in their order, so it has the same
/// bits wherever it lies and whatever the processor's vectors are.
/// @param panels      outer_product_panels(product)
/// @param begin, end  rows: [0, rows) for the whole result
void write_outer_product(const OuterProduct& product, std::span<const float> panels, std::int64_t begin,
                         std::int64_t end, float* result);

}  // namespace lockstep::kernels
