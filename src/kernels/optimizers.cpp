// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/optimizers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/numbers/dtype.hpp"
#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::int64_t kLanes = 16;  // running sums, so that every vector width adds in the same order
using Lanes = std::array<double, kLanes>;

double sum_of(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
LOCKSTEP_INLINE double products(const T* a, const T* b, std::int64_t count) {
  Lanes sums{};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  double sum = sum_of(sums);
  for (std::int64_t i = whole; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <class T>
LOCKSTEP_INLINE void blend_elements(T* __restrict average, const T* __restrict values, std::int64_t count, T weight) {
  for (std::int64_t i = 0; i < count; ++i) average[i] += weight * (values[i] - average[i]);
}

template <class T>
LOCKSTEP_INLINE void exchange_elements(T* __restrict a, T* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

template <class T>
void blend_as(std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  auto* const target = reinterpret_cast<T*>(average);
  const auto* const from = reinterpret_cast<const T*>(values);
  if (weight == 1) {
    std::copy_n(from, count, target);
  } else {
    at_level<blend_elements<T>>(target, from, count, static_cast<T>(weight));
  }
}

/// Values of 16 bits, some at a time in float32.
void blend_halves(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  constexpr std::int64_t kChunk = 4096;
  const HalfFormat format = half_format(dtype);
  std::array<float, kChunk> wide;  // uninitialized: filled as far as it is used
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t n = std::min(kChunk, count - begin);
    format.widen(values + begin * static_cast<std::int64_t>(kHalfBytes), wide.data(), static_cast<std::size_t>(n));
    blend_as<float>(average + begin * static_cast<std::int64_t>(sizeof(float)),
                    reinterpret_cast<const std::byte*>(wide.data()), n, weight);
  }
}

constexpr std::uint32_t kExponent = 0x7F800000U;

/// A hash of 32 bits, without collisions. Source: the finalizer of MurmurHash3, Austin Appleby, public domain.
inline std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return x ^ (x >> 16);
}

LOCKSTEP_INLINE void round_elements(const float* from, std::byte* target, std::int64_t count, std::uint32_t begin,
                                    RoundingKey key) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t position = begin + static_cast<std::uint32_t>(i);
    const std::uint32_t random = mixed(mixed(position ^ key.first) + key.second) >> 16;
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const bool is_finite = (bits & kExponent) != kExponent;
    const std::uint32_t is_nan = (bits & ~0x80000000U) > kExponent ? 0x40U : 0;
    const auto half = static_cast<std::uint16_t>(is_finite ? (bits + random) >> 16 : (bits >> 16) | is_nan);
    std::memcpy(target + i * 2, &half, sizeof half);
  }
}

/// The sum of one row. Adds each square to its column's sum, too.
template <class T>
LOCKSTEP_INLINE double add_squares(const T* __restrict row, std::int64_t columns, double* __restrict of_columns) {
  Lanes sums{};
  const std::int64_t whole = columns - columns % kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(row[c + lane]);
      of_columns[c + lane] += value * value;
      sums[lane] += value * value;
    }
  }
  double sum = sum_of(sums);
  for (std::int64_t c = whole; c < columns; ++c) {
    const auto value = static_cast<double>(row[c]);
    of_columns[c] += value * value;
    sum += value * value;
  }
  return sum;
}

/// 1 / max(eps1, root of the estimated mean square), for an element of a row and a column. A NaN stays.
template <class T>
LOCKSTEP_INLINE T slowing(T of_row, T of_column, T max) {
  const T product = of_row * of_column;
  return product > max ? max : product;
}

/// The sum of squares of one row of the direction.
template <class T>
LOCKSTEP_INLINE double square_direction(const T* __restrict row, std::int64_t columns, T of_row,
                                        const T* __restrict of_columns, T max) {
  Lanes sums{};
  const std::int64_t whole = columns - columns % kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(row[c + lane] * slowing(of_row, of_columns[c + lane], max));
      sums[lane] += value * value;
    }
  }
  double sum = sum_of(sums);
  for (std::int64_t c = whole; c < columns; ++c) {
    const auto value = static_cast<double>(row[c] * slowing(of_row, of_columns[c], max));
    sum += value * value;
  }
  return sum;
}

template <class T>
LOCKSTEP_INLINE void move_row(T* __restrict parameter, const T* __restrict gradient, std::int64_t columns, T of_row,
                              const T* __restrict of_columns, T max, T decay_factor, T step) {
  for (std::int64_t c = 0; c < columns; ++c) {
    parameter[c] = decay_factor * parameter[c] - step * (gradient[c] * slowing(of_row, of_columns[c], max));
  }
}

/// The factors of rows and columns, whose product slows a step down.
template <class T>
struct Slowing {
  std::vector<T> of_rows;     // [count, rows]
  std::vector<T> of_columns;  // [count, columns]
};

template <class T>
T inverse_root(double value) {
  return static_cast<T>(1 / std::sqrt(value));
}

/// Moves the mean squares of one matrix.
template <class T>
void learn(const AdafactorMatrices<T>& matrices, std::int64_t matrix, double take, std::vector<double>& sums) {
  const auto toward = [take](T mean, double sum, std::int64_t count) {
    return static_cast<T>(static_cast<double>(mean) + take * (sum / static_cast<double>(count) - mean));
  };
  std::fill(sums.begin(), sums.end(), 0);
  for (std::int64_t r = matrix * matrices.rows; r < (matrix + 1) * matrices.rows; ++r) {
    const double sum =
        at_level<add_squares<T>>(matrices.gradients + r * matrices.columns, matrices.columns, sums.data());
    matrices.of_rows[r] = toward(matrices.of_rows[r], sum, matrices.columns);
  }
  T* const columns = matrices.of_columns + matrix * matrices.columns;
  for (std::int64_t c = 0; c < matrices.columns; ++c) columns[c] = toward(columns[c], sums[c], matrices.rows);
}

template <class T>
Slowing<T> learn(const AdafactorMatrices<T>& matrices, const AdafactorNumbers& numbers) {
  Slowing<T> slowing{.of_rows = std::vector<T>(matrices.count * matrices.rows),
                     .of_columns = std::vector<T>(matrices.count * matrices.columns)};
  std::vector<double> sums(matrices.columns);
  for (std::int64_t matrix = 0; matrix < matrices.count; ++matrix) {
    learn(matrices, matrix, numbers.take, sums);
    const T* const rows = matrices.of_rows + matrix * matrices.rows;
    double mean = 0;
    for (std::int64_t r = 0; r < matrices.rows; ++r)
      mean += static_cast<double>(rows[r]) / static_cast<double>(matrices.rows);
    mean = mean < numbers.eps1 ? numbers.eps1 : mean;  // a NaN stays
    std::transform(rows, rows + matrices.rows, slowing.of_rows.begin() + matrix * matrices.rows,
                   [mean](T row) { return inverse_root<T>(static_cast<double>(row) / mean); });
  }
  std::transform(matrices.of_columns, matrices.of_columns + matrices.count * matrices.columns,
                 slowing.of_columns.begin(), [](T column) { return inverse_root<T>(static_cast<double>(column)); });
  return slowing;
}

template <class T>
void update(const AdafactorMatrices<T>& matrices, const AdafactorNumbers& numbers) {
  const auto count = static_cast<double>(matrices.count * matrices.rows * matrices.columns);
  const double size =
      std::sqrt(sum_of_squares(matrices.parameters, matrices.count * matrices.rows * matrices.columns) / count);
  const Slowing<T> slowing = learn(matrices, numbers);
  const auto max = static_cast<T>(1 / numbers.eps1);
  /// visit(row of all matrices, its factor, the factors of its columns)
  const auto for_each_row = [&](const auto& visit) {
    for (std::int64_t r = 0; r < matrices.count * matrices.rows; ++r) {
      visit(r * matrices.columns, slowing.of_rows[r], slowing.of_columns.data() + r / matrices.rows * matrices.columns);
    }
  };
  double squares = 0;
  for_each_row([&](std::int64_t position, T of_row, const T* of_columns) {
    squares += at_level<square_direction<T>>(matrices.gradients + position, matrices.columns, of_row, of_columns, max);
  });
  const double shorten = std::sqrt(squares / count) / numbers.d;
  const double lr = (size < numbers.eps2 ? numbers.eps2 : size) * numbers.relative_lr;
  const auto step = static_cast<T>(numbers.sign * lr / (shorten < 1 ? 1 : shorten));
  for_each_row([&](std::int64_t position, T of_row, const T* of_columns) {
    at_level<move_row<T>>(matrices.parameters + position, matrices.gradients + position, matrices.columns, of_row,
                          of_columns, max, static_cast<T>(numbers.decay_factor), step);
  });
}

}  // namespace

double sum_of_products(const float* a, const float* b, std::int64_t count) {
  return at_level<products<float>>(a, b, count);
}
double sum_of_products(const double* a, const double* b, std::int64_t count) {
  return at_level<products<double>>(a, b, count);
}
double sum_of_squares(const float* values, std::int64_t count) {
  return at_level<products<float>>(values, values, count);
}
double sum_of_squares(const double* values, std::int64_t count) {
  return at_level<products<double>>(values, values, count);
}

DType average_type(DType dtype) { return size_of(dtype) == kHalfBytes ? DType::float32 : dtype; }

void blend(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  if (average_type(dtype) != dtype) return blend_halves(dtype, average, values, count, weight);
  dtype == DType::float32 ? blend_as<float>(average, values, count, weight)
                          : blend_as<double>(average, values, count, weight);
}

void exchange(DType dtype, std::byte* a, std::byte* b, std::int64_t count) {
  if (dtype == DType::float32) {
    at_level<exchange_elements<float>>(reinterpret_cast<float*>(a), reinterpret_cast<float*>(b), count);
  } else {
    at_level<exchange_elements<double>>(reinterpret_cast<double*>(a), reinterpret_cast<double*>(b), count);
  }
}

void round_stochastically(const float* from, std::byte* target, std::int64_t count, std::int64_t begin,
                          RoundingKey key) {
  at_level<round_elements>(from, target, count, static_cast<std::uint32_t>(begin), key);
}

void update_by_adafactor(const AdafactorMatrices<float>& matrices, const AdafactorNumbers& numbers) {
  update(matrices, numbers);
}

void update_by_adafactor(const AdafactorMatrices<double>& matrices, const AdafactorNumbers& numbers) {
  update(matrices, numbers);
}

}  // namespace lockstep::kernels
