// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/dot_products.hpp"

#include "kernels/vectors.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::int64_t kOutputs = 2;  // rows of the weight that are read together

/// Rows of the input that are worked on together: the sums fill 8 of 16 registers, or 16 of the 32 of AVX-512.
template <std::int64_t kLength>
constexpr std::int64_t kInputRows = 4;
template <>
constexpr std::int64_t kInputRows<kLongVector> = 8;

template <std::int64_t kLength>
LOCKSTEP_INLINE float sum_of(const FloatVector<kLength>& value) {
  float parts[kLength];
  vector_at<kLength>(parts) = value;
#pragma GCC unroll 4
  for (std::int64_t half = kLength / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return parts[0];
}

/// kRows x kColumns elements of the result.
template <std::int64_t kLength, std::int64_t kRows, std::int64_t kColumns>
LOCKSTEP_INLINE void write_tile(const DotProducts& products, std::int64_t row, std::int64_t output, float* result) {
  const std::int64_t inputs = products.inputs;
  const float* const input = products.input + row * inputs;
  const float* const weight = products.weight + output * inputs;
  FloatVector<kLength> sums[kRows][kColumns] = {};
  std::int64_t i = 0;
  for (; i + kLength <= inputs; i += kLength) {
    FloatVector<kLength> factors[kColumns];
#pragma GCC unroll 8
    for (std::int64_t o = 0; o < kColumns; ++o) factors[o] = vector_at<kLength>(weight + o * inputs + i);
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kRows; ++r) {
      const FloatVector<kLength> values = vector_at<kLength>(input + r * inputs + i);
#pragma GCC unroll 8
      for (std::int64_t o = 0; o < kColumns; ++o) sums[r][o] += values * factors[o];
    }
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t o = 0; o < kColumns; ++o) {
      float sum = sum_of<kLength>(sums[r][o]);
      for (std::int64_t rest = i; rest < inputs; ++rest) sum += input[r * inputs + rest] * weight[o * inputs + rest];
      const float bias = products.bias == nullptr ? 0 : products.bias[output + o];
      result[(row + r) * products.outputs + output + o] = sum + bias;
    }
  }
}

/// kColumns columns of the result: tiles of kRows rows, and smaller ones for the last rows.
template <std::int64_t kLength, std::int64_t kRows, std::int64_t kColumns>
LOCKSTEP_INLINE void write_columns(const DotProducts& products, std::int64_t row, std::int64_t output, float* result) {
  for (; row + kRows <= products.rows; row += kRows) {
    write_tile<kLength, kRows, kColumns>(products, row, output, result);
  }
  if constexpr (kRows > 1) write_columns<kLength, kRows / 2, kColumns>(products, row, output, result);
}

template <std::int64_t kLength>
LOCKSTEP_INLINE void write_all(const DotProducts& products, std::int64_t begin, std::int64_t end, float* result) {
  std::int64_t output = begin;
  for (; output + kOutputs <= end; output += kOutputs) {
    write_columns<kLength, kInputRows<kLength>, kOutputs>(products, 0, output, result);
  }
  if (output < end) write_columns<kLength, kInputRows<kLength>, 1>(products, 0, output, result);
}

}  // namespace

void write_dot_products(const DotProducts& products, std::int64_t begin, std::int64_t end, float* result) {
  with_vectors<write_all<kShortVector>, write_all<kLongVector>>(products, begin, end, result);
}

}  // namespace lockstep::kernels
