// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sync/sync_batch_norm_kernels.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/numbers/processor_level.hpp"

namespace lockstep::parallel {

namespace {

LOCKSTEP_INLINE double load(float value) { return value; }
LOCKSTEP_INLINE double load(double value) { return value; }
LOCKSTEP_INLINE double load(c10::BFloat16 value) { return static_cast<float>(value); }
LOCKSTEP_INLINE double load(c10::Half value) { return static_cast<float>(value); }

LOCKSTEP_INLINE void store(double value, float& target) { target = static_cast<float>(value); }
LOCKSTEP_INLINE void store(double value, double& target) { target = value; }
LOCKSTEP_INLINE void store(double value, c10::BFloat16& target) { target = static_cast<float>(value); }
LOCKSTEP_INLINE void store(double value, c10::Half& target) { target = static_cast<float>(value); }

/// inner is 1: channels are adjacent.
template <class T>
LOCKSTEP_INLINE void sum_rows(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
                              const double* mean, double* sums, double* dot_sums) {
  std::fill(sums + begin, sums + end, 0.0);
  std::fill(dot_sums + begin, dot_sums + end, 0.0);
  for (std::int64_t n = 0; n < shape.outer; ++n) {
    const std::int64_t position = n * shape.channels;
#pragma GCC ivdep
    for (std::int64_t c = begin; c < end; ++c) {
      const double g = load(dy[position + c]);
      sums[c] += g;
      dot_sums[c] += g * (load(x[position + c]) - mean[c]);
    }
  }
}

/// The elements of a channel are adjacent within each outer index.
template <class T>
LOCKSTEP_INLINE void sum_planes(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
                                const double* mean, double* sums, double* dot_sums) {
  constexpr std::int64_t kLanes = 64;  // independent partial sums, so that the loop is vectorized
  for (std::int64_t c = begin; c < end; ++c) {
    std::array<double, kLanes> lane_sums{};
    std::array<double, kLanes> lane_dots{};
    double* const sum = lane_sums.data();
    double* const dot = lane_dots.data();
    const double m = mean[c];
    for (std::int64_t n = 0; n < shape.outer; ++n) {
      const std::int64_t first = (n * shape.channels + c) * shape.inner;
      const std::int64_t last = first + shape.inner;
      for (std::int64_t position = first; position < last; position += kLanes) {
        const std::int64_t count = std::min(kLanes, last - position);
#pragma GCC ivdep
        for (std::int64_t k = 0; k < count; ++k) {
          const double g = load(dy[position + k]);
          sum[k] += g;
          dot[k] += g * (load(x[position + k]) - m);
        }
      }
    }
    sums[c] = std::accumulate(lane_sums.begin(), lane_sums.end(), 0.0);
    dot_sums[c] = std::accumulate(lane_dots.begin(), lane_dots.end(), 0.0);
  }
}

template <class T>
LOCKSTEP_INLINE void sums_of(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
                             const double* mean, double* sums, double* dot_sums) {
  if (shape.inner == 1) return sum_rows(shape, begin, end, dy, x, mean, sums, dot_sums);
  sum_planes(shape, begin, end, dy, x, mean, sums, dot_sums);
}

template <class T>
LOCKSTEP_INLINE void gradient_of(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
                                 const NormGradientTerms& terms, T* dx) {
  if (shape.inner == 1) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t position = n * shape.channels;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        store(terms.slope[c] * (load(dy[position + c]) - terms.mean_gradient[c]) +
                  terms.factor[c] * (load(x[position + c]) - terms.mean[c]),
              dx[position + c]);
      }
    }
    return;
  }
  for (std::int64_t plane = begin * shape.channels; plane < end * shape.channels; ++plane) {
    const std::int64_t c = plane % shape.channels;
    const double mean = terms.mean[c];
    const double mean_gradient = terms.mean_gradient[c];
    const double slope = terms.slope[c];
    const double factor = terms.factor[c];
    const std::int64_t position = plane * shape.inner;
#pragma GCC ivdep
    for (std::int64_t i = position; i < position + shape.inner; ++i) {
      store(slope * (load(dy[i]) - mean_gradient) + factor * (load(x[i]) - mean), dx[i]);
    }
  }
}

}  // namespace

template <class T>
void norm_sums(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
               const double* mean, double* sums, double* dot_sums) {
  at_level<sums_of<T>>(shape, begin, end, dy, x, mean, sums, dot_sums);
}

template <class T>
void norm_input_gradient(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
                         const NormGradientTerms& terms, T* dx) {
  at_level<gradient_of<T>>(shape, begin, end, dy, x, terms, dx);
}

#define LOCKSTEP_SYNC_NORM_KERNELS(T)                                                                               \
  template void norm_sums(const NormShape&, std::int64_t, std::int64_t, const T*, const T*, const double*, double*, \
                          double*);                                                                                 \
  template void norm_input_gradient(const NormShape&, std::int64_t, std::int64_t, const T*, const T*,               \
                                    const NormGradientTerms&, T*);

LOCKSTEP_SYNC_NORM_KERNELS(float)
LOCKSTEP_SYNC_NORM_KERNELS(double)
LOCKSTEP_SYNC_NORM_KERNELS(c10::BFloat16)
LOCKSTEP_SYNC_NORM_KERNELS(c10::Half)

}  // namespace lockstep::parallel
