// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {

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
