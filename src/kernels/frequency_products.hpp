// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// A matrix of complex numbers for each frequency. The numbers that an element has for all frequencies lie side by
/// side, each as (real, imaginary). Steps are counted in float32 numbers.
struct FrequencyMatrices {
  float* values;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_step;
  std::int64_t column_step;
};

enum class Conjugate : std::uint8_t { none, left, right };

/// result = left right, for each frequency on its own.
struct FrequencyProduct {
  FrequencyMatrices left;
  FrequencyMatrices right;  ///< [left.columns, result.columns]
  FrequencyMatrices result;
  std::int64_t frequencies;  ///< >= 1
  Conjugate conjugate = Conjugate::none;
};

/// Writes a part of the rows. Each number is summed over the depth in ascending order, so that at a level it has the
/// same bits wherever it lies.
/// @param begin, end  rows: [0, result.rows) for the whole result
void write_frequency_product(const FrequencyProduct& product, std::int64_t begin, std::int64_t end);

}  // namespace lockstep::kernels
