// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// The forward of a linear layer for so few rows that reading the weight takes most of the time. MKL, to which the rows
/// of the weight are columns, copies them first.
struct DotProducts {
  const float* input;   ///< [rows, inputs]
  const float* weight;  ///< [outputs, inputs]
  const float* bias;    ///< [outputs], or null
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
};

inline constexpr std::int64_t kMaxDotRows = 15;

/// result [rows, outputs] = input weight^T + bias. The sum of an element has the same order for any number of rows.
/// @param begin, end  outputs: [0, outputs) for the whole result
void write_dot_products(const DotProducts& products, std::int64_t begin, std::int64_t end, float* result);

}  // namespace lockstep::kernels
