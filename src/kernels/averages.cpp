// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/averages.hpp"

#include <algorithm>
#include <array>

#include "core/numbers/at_level.hpp"
#include "core/numbers/half_format.hpp"

namespace lockstep::kernels {

namespace {

template <class T>
LOCKSTEP_INLINE void blend_elements(T* __restrict average, const T* __restrict values, std::int64_t count, T weight) {
  for (std::int64_t i = 0; i < count; ++i) average[i] += weight * (values[i] - average[i]);
}

template <class T>
LOCKSTEP_INLINE void exchange_elements(T* __restrict a, T* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

template <class T>
void blend_as(std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  auto* const target = reinterpret_cast<T*>(average);
  const auto* const from = reinterpret_cast<const T*>(values);
  if (weight == 1) {
    std::copy_n(from, count, target);
  } else {
    at_level<blend_elements<T>>(target, from, count, static_cast<T>(weight));
  }
}

/// Values of 16 bits, some at a time in float32.
void blend_halves(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  constexpr std::int64_t kChunk = 4096;
  const HalfFormat format = half_format(dtype);
  std::array<float, kChunk> wide;  // uninitialized: filled as far as it is used
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t n = std::min(kChunk, count - begin);
    format.widen(values + begin * static_cast<std::int64_t>(kHalfBytes), wide.data(), static_cast<std::size_t>(n));
    blend_as<float>(average + begin * static_cast<std::int64_t>(sizeof(float)),
                    reinterpret_cast<const std::byte*>(wide.data()), n, weight);
  }
}

}  // namespace

DType average_type(DType dtype) { return size_of(dtype) == kHalfBytes ? DType::float32 : dtype; }

void blend(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight) {
  if (average_type(dtype) != dtype) return blend_halves(dtype, average, values, count, weight);
  dtype == DType::float32 ? blend_as<float>(average, values, count, weight)
                          : blend_as<double>(average, values, count, weight);
}

void exchange(DType dtype, std::byte* a, std::byte* b, std::int64_t count) {
  if (dtype == DType::float32) {
    at_level<exchange_elements<float>>(reinterpret_cast<float*>(a), reinterpret_cast<float*>(b), count);
  } else {
    at_level<exchange_elements<double>>(reinterpret_cast<double*>(a), reinterpret_cast<double*>(b), count);
  }
}

}  // namespace lockstep::kernels
