// SPDX-License-Identifier: BSD-3-Clause
#include "optim/average_loops.hpp"

#include <algorithm>

#include "optim/kernel.hpp"

namespace lockstep::optim {

namespace {

template <class T>
LOCKSTEP_VECTORISED void blend_elements(T* __restrict average, const T* __restrict values, std::int64_t count,
                                        T weight) {
  for (std::int64_t i = 0; i < count; ++i) average[i] += weight * (values[i] - average[i]);
}

template <class T>
LOCKSTEP_VECTORISED void exchange_elements(T* __restrict a, T* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

template <class T>
void blend_as(std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  auto* const to = reinterpret_cast<T*>(average);
  const auto* const from = reinterpret_cast<const T*>(values);
  if (weight == 1) {
    std::copy_n(from, count, to);
  } else {
    blend_elements(to, from, count, static_cast<T>(weight));
  }
}

}  // namespace

void blend(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  dtype == DType::float32 ? blend_as<float>(average, values, count, weight)
                          : blend_as<double>(average, values, count, weight);
}

void exchange(DType dtype, std::byte* a, std::byte* b, std::int64_t count) {
  if (dtype == DType::float32) {
    exchange_elements(reinterpret_cast<float*>(a), reinterpret_cast<float*>(b), count);
  } else {
    exchange_elements(reinterpret_cast<double*>(a), reinterpret_cast<double*>(b), count);
  }
}

}  // namespace lockstep::optim
