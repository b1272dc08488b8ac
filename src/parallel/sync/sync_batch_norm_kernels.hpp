// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

// The backward of a synchronized batch norm on the CPU. All arithmetic is in double: with few samples the terms of the
// input gradient cancel almost completely. Sums are taken channel by channel in a fixed order.
namespace lockstep::parallel {

/// Arrays of [outer, channels, inner].
struct NormShape {
  std::int64_t outer;
  std::int64_t channels;
  std::int64_t inner;
};

/// The input gradient is slope * (dy - mean_gradient) + factor * (x - mean). Each array is [channels].
struct NormGradientTerms {
  const double* mean;
  const double* mean_gradient;
  const double* slope;
  const double* factor;
};

/// Sums over the channels [begin, end).
/// @tparam T        float, double, c10::BFloat16 or c10::Half, here and below
/// @param sums      [channels], output: sum of dy
/// @param dot_sums  [channels], output: sum of dy * (x - mean)
template <class T>
void norm_sums(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
               const double* mean, double* sums, double* dot_sums);

/// Computes the input gradient for the outer indices [begin, end).
template <class T>
void norm_input_gradient(const NormShape& shape, std::int64_t begin, std::int64_t end, const T* dy, const T* x,
                         const NormGradientTerms& terms, T* dx);

}  // namespace lockstep::parallel
