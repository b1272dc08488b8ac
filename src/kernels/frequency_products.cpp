// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/frequency_products.hpp"

#include <algorithm>
#include <utility>

#include "kernels/vectors.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::int64_t kTileRows = 2;
constexpr std::int64_t kShortestVector = 2;  // one complex number

/// The signs of (real, imaginary) of the two sums of a complex product, see write_tile.
struct Signs {
  float of_real[2];
  float of_turned[2];
};

/// The product a b is r + i s with r = sum(Re(a) b) and s = sum(Im(a) b); conj(a) b is r - i s, and a conj(b) is the
/// conjugate of conj(a) b.
LOCKSTEP_INLINE Signs signs_of(Conjugate conjugate) {
  switch (conjugate) {
    case Conjugate::left:
      return {{1, 1}, {1, -1}};
    case Conjugate::right:
      return {{1, -1}, {1, 1}};
    default:
      return {{1, 1}, {-1, 1}};
  }
}

/// The real parts of a vector of complex numbers in both places of each (kPart = 0), its imaginary parts (1), or the
/// two parts exchanged (2).
template <std::int64_t kLength, std::int64_t kPart, std::int64_t... kPlace>
LOCKSTEP_INLINE void take(const FloatVector<kLength>& from, FloatVector<kLength>& taken,
                          std::integer_sequence<std::int64_t, kPlace...>) {
  taken = __builtin_shufflevector(from, from, (kPart == 2 ? kPlace ^ 1 : (kPlace & ~std::int64_t{1}) + kPart)...);
}

/// The place of a tile: its first row and column, and the first number of its frequencies.
struct TilePlace {
  std::int64_t row;
  std::int64_t column;
  std::int64_t number;
};

/// @param last_row  a tile that would reach past it writes this row several times, and the last column likewise
template <std::int64_t kLength, std::int64_t kTileColumns>
LOCKSTEP_INLINE void write_tile(const FrequencyProduct& product, const TilePlace& place, std::int64_t last_row) {
  using Vector = FloatVector<kLength>;
  constexpr auto kPlaces = std::make_integer_sequence<std::int64_t, kLength>{};
  const float* left[kTileRows];
  const float* right[kTileColumns];
  std::int64_t rows[kTileRows];
  std::int64_t columns[kTileColumns];
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    rows[r] = std::min(place.row + r, last_row);
    left[r] = product.left.values + rows[r] * product.left.row_step + place.number;
  }
  for (std::int64_t c = 0; c < kTileColumns; ++c) {
    columns[c] = std::min(place.column + c, product.result.columns - 1);
    right[c] = product.right.values + columns[c] * product.right.column_step + place.number;
  }
  Vector of_real[kTileRows][kTileColumns] = {};
  Vector of_imaginary[kTileRows][kTileColumns] = {};
  for (std::int64_t d = 0; d < product.left.columns; ++d) {
    Vector factors[kTileColumns];
#pragma GCC unroll 8
    for (std::int64_t c = 0; c < kTileColumns; ++c) {
      factors[c] = vector_at<kLength>(right[c] + d * product.right.row_step);
    }
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      const Vector numbers = vector_at<kLength>(left[r] + d * product.left.column_step);
      Vector real, imaginary;
      take<kLength, 0>(numbers, real, kPlaces);
      take<kLength, 1>(numbers, imaginary, kPlaces);
#pragma GCC unroll 8
      for (std::int64_t c = 0; c < kTileColumns; ++c) {
        of_real[r][c] += real * factors[c];
        of_imaginary[r][c] += imaginary * factors[c];
      }
    }
  }
  const Signs signs = signs_of(product.conjugate);
  Vector real_signs, turned_signs;
  for (std::int64_t i = 0; i < kLength; ++i) {
    real_signs[i] = signs.of_real[i % 2];
    turned_signs[i] = signs.of_turned[i % 2];
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (std::int64_t c = 0; c < kTileColumns; ++c) {
      Vector turned;
      take<kLength, 2>(of_imaginary[r][c], turned, kPlaces);
      float* const target = product.result.values + rows[r] * product.result.row_step +
                            columns[c] * product.result.column_step + place.number;
      vector_at<kLength>(target) = of_real[r][c] * real_signs + turned * turned_signs;
    }
  }
}

/// The last vector of frequencies begins so early that it ends with the last frequency. Fewer frequencies than a vector
/// has are computed with shorter ones.
/// @tparam kTileColumns  so many that the sums of a tile fit into the registers of a level
template <std::int64_t kLength, std::int64_t kTileColumns>
LOCKSTEP_INLINE void write_rows(const FrequencyProduct& product, std::int64_t begin, std::int64_t end) {
  const std::int64_t numbers = 2 * product.frequencies;
  if constexpr (kLength > kShortestVector) {
    if (numbers < kLength) return write_rows<kLength / 2, kTileColumns>(product, begin, end);
  }
  for (std::int64_t number = 0; number < numbers; number += kLength) {
    for (std::int64_t column = 0; column < product.result.columns; column += kTileColumns) {
      for (std::int64_t row = begin; row < end; row += kTileRows) {
        write_tile<kLength, kTileColumns>(product, {row, column, std::min(number, numbers - kLength)}, end - 1);
      }
    }
  }
}

}  // namespace

void write_frequency_product(const FrequencyProduct& product, std::int64_t begin, std::int64_t end) {
  at_level<write_rows<kShortVector / 2, 2>, write_rows<kShortVector, 2>, write_rows<kLongVector, 4>>(product, begin,
                                                                                                     end);
}

}  // namespace lockstep::kernels
