// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// A sum in double, with the same bits for every vector width.
double sum_of_products(const float* a, const float* b, std::int64_t count);
double sum_of_products(const double* a, const double* b, std::int64_t count);
double sum_of_squares(const float* values, std::int64_t count);
double sum_of_squares(const double* values, std::int64_t count);

}  // namespace lockstep::kernels
