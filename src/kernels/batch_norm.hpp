// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/numbers/dtype.hpp"

// Batch normalization of rows of channels, and a sum and a ReLU behind it, in as few passes over memory as it takes.
// Sums are taken channel by channel in a fixed order: the same bits on any processor and with any number of threads.
// Source: Ioffe and Szegedy, "Batch normalization", 2015, algorithm 1; blocks of rows are combined as in Chan, Golub
// and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
namespace lockstep::kernels {

/// Arrays of [rows, channels], and which of the channels are worked on.
struct NormRange {
  std::int64_t rows;
  std::int64_t channels;
  std::int64_t begin;
  std::int64_t end;
};

/// The operations after the normalization.
struct NormTail {
  bool has_residual = false;  ///< is added
  bool has_relu = false;
};

/// Factors for each channel, all [channels].
struct NormFactors {
  const float* scale;  ///< weight / sqrt(variance + eps)
  const float* shift;  ///< bias - mean * scale
  const float* mean;
};

/// @param mean      set, [channels]
/// @param variance  set, [channels]: biased
void norm_statistics(const NormRange& range, const float* input, float* mean, float* variance);
void norm_statistics(const NormRange& range, const BFloat16* input, float* mean, float* variance);

/// output = relu(input * scale + shift + residual)
void norm_output(const NormRange& range, const NormTail& tail, const NormFactors& factors, const float* input,
                 const float* residual, float* output);
void norm_output(const NormRange& range, const NormTail& tail, const NormFactors& factors, const BFloat16* input,
                 const BFloat16* residual, BFloat16* output);

/// The gradient before the ReLU, g, summed over rows.
/// @param output    of the forward; read where there are a residual and a ReLU
/// @param inner     set to g where there are both
/// @param sums      set, [channels]: of g
/// @param dot_sums  set, [channels]: of g * (input - mean)
void norm_sums(const NormRange& range, const NormTail& tail, const NormFactors& factors, const float* gradient,
               const float* input, const float* output, float* inner, float* sums, float* dot_sums);
void norm_sums(const NormRange& range, const NormTail& tail, const NormFactors& factors, const BFloat16* gradient,
               const BFloat16* input, const BFloat16* output, BFloat16* inner, float* sums, float* dot_sums);

/// input_gradient = scale * (g - offset - (input - mean) * slope)
/// @param gradient  of the output; or g itself where there are a residual and a ReLU
void norm_input_gradient(const NormRange& range, const NormTail& tail, const NormFactors& factors, const float* offset,
                         const float* slope, const float* gradient, const float* input, float* input_gradient);
void norm_input_gradient(const NormRange& range, const NormTail& tail, const NormFactors& factors, const float* offset,
                         const float* slope, const BFloat16* gradient, const BFloat16* input, BFloat16* input_gradient);

}  // namespace lockstep::kernels
