// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

/// The type of the average of values: float32 for 16-bit values, else that of the values.
DType average_type(DType dtype);

// Operations on `count` values of any floating-point type.

/// average += weight * (values - average); with weight 1 the values themselves.
void blend(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight);
/// Functions of float32 and float64.
void exchange(DType dtype, std::byte* a, std::byte* b, std::int64_t count);

}  // namespace lockstep::kernels
