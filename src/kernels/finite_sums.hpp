// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::kernels {

/// Sums of the finite elements of an array. Booleans count as 0 and 1.
struct FiniteSums {
  std::uint64_t count = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double square_sum = 0;
  std::uint64_t zeros = 0;  ///< number of zeros, +0 and -0
};

/// The loop for a type. The same bits at any level. Nothing needs to be aligned.
struct Summation {
  std::size_t element_bytes;  ///< size of one summed number: a complex element has two
  FiniteSums (*sum)(const std::byte* bytes, std::size_t count);
};

Summation summation_of(DType dtype);

}  // namespace lockstep::kernels
