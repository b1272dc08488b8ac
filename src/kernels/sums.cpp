// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/sums.hpp"

#include <array>

#include "core/numbers/at_level.hpp"

namespace lockstep::kernels {

namespace {

/// Sixteen running sums, so that every vector width adds in the same order.
template <class T>
LOCKSTEP_INLINE double products(const T* a, const T* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::int64_t i = whole; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
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

}  // namespace lockstep::kernels
