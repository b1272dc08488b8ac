// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::optim {

// Of `count` elements of float32 or float64.

/// average += weight * (values - average); with weight 1 the values themselves.
void blend(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight);
void exchange(DType dtype, std::byte* a, std::byte* b, std::int64_t count);

}  // namespace lockstep::optim
