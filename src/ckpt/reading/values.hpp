// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/format/elements.hpp"

/// The numbers in an array: as text, in another type, how often they occur, and compared with those of another array.
namespace lockstep::ckpt {

using checkpoints::Array;
using checkpoints::element_count;
using checkpoints::is_complex;
using checkpoints::is_floating;
using checkpoints::number_count;
using checkpoints::position_of;
using checkpoints::Statistics;
using checkpoints::StoredNumber;
using checkpoints::with_loader;
using checkpoints::with_numbers;

/// The largest finite number of float16.
inline constexpr double kLargestHalf = 65504.0;

Statistics statistics_of(const Array& array);
/// The largest magnitude of the finite numbers.
double absmax_of(const Statistics& statistics);
/// Their standard deviation.
double deviation_of(const Statistics& statistics);

struct NumberFormat {
  int digits = 6;       ///< significant ones of a floating-point number
  bool is_hex = false;  ///< the bytes of the element instead, highest first
};

/// One element as text: "0.125", "true", "1-2i", "0x3e00".
std::string element_text(const Array& array, std::int64_t index, const NumberFormat& format);

bool is_real_floating(DType dtype);

/// Memory for an array of this type and shape.
std::pair<Array, std::byte*> new_array(DType dtype, const std::vector<std::int64_t>& shape);

/// Stores number `i` of a floating-point array, rounded to its type.
void store(DType dtype, std::byte* bytes, std::int64_t i, double value);

/// A floating-point array in another floating-point type, rounded to the nearest.
Array cast_to(const Array& array, DType dtype);

/// Whether a finite number of `before` is infinite in `after`, which has another type.
bool overflows(const Array& before, const Array& after);

/// The number of finite values of an array in each of equally wide bins from `low` to `high`. A number between two bins
/// belongs to the upper one, and `high` to the last.
struct BinCounts {
  double low = 0.0;
  double high = 1.0;
  std::vector<std::int64_t> counts;
  std::uint64_t nans = 0;
  std::uint64_t infs = 0;

  /// The lower edge of bin `i`; edge(counts.size()) is `high`.
  double edge(std::size_t i) const {
    return low + (high - low) * static_cast<double>(i) / static_cast<double>(counts.size());
  }
};

/// Bins from the smallest to the largest number; a single value gets bins on both sides, and an array without finite
/// numbers the bins of 0.
/// @param bins  >= 1
BinCounts histogram_of(const Array& array, std::size_t bins);

/// When two numbers count as the same.
struct DiffTolerance {
  double atol = 0.0;  ///< |a - b| <= atol + rtol * |b|
  double rtol = 0.0;
  bool nan_equal = false;   ///< whether a NaN is the same as a NaN
  bool is_bitwise = false;  ///< the same bytes: -0.0 is not 0.0, and a NaN is the same as that very NaN
};

/// The differences of two arrays with the same type and shape. The maxima are over all elements, within tolerance or
/// not.
struct Comparison {
  std::int64_t differing = 0;  ///< elements that are not the same
  double max_abs = 0.0;        ///< maximum of |a - b|
  double max_rel = 0.0;        ///< maximum of |a - b| / max(|a|, |b|)
  std::uint64_t max_ulp = 0;   ///< floating-point numbers of the type between a and b, plus one; 0 for other types
  std::optional<std::int64_t> first;  ///< the first element that is not the same, in row-major order
};

/// @param left, right  of the same dtype and shape
Comparison compare(const Array& left, const Array& right, const DiffTolerance& tolerance);

}  // namespace lockstep::ckpt
