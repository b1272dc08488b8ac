// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {

bool is_real_floating(DType dtype);

/// Memory for an array of this type and shape.
std::pair<Array, std::byte*> new_array(DType dtype, const std::vector<std::int64_t>& shape);

/// Stores number `i` of a floating-point array, rounded to its type.
void store(DType dtype, std::byte* bytes, std::int64_t i, double value);

/// A floating-point array in another floating-point type, rounded to the nearest.
Array cast_to(const Array& array, DType dtype);

/// Whether a finite number of `before` is infinite in `after`, which has another type.
bool overflows(const Array& before, const Array& after);

}  // namespace lockstep::ckpt
