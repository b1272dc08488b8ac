// SPDX-License-Identifier: BSD-3-Clause
// The numbers in an array, and how they are printed.
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "checkpoints/format/elements.hpp"
#include "checkpoints/format/statistics.hpp"

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

}  // namespace lockstep::ckpt
