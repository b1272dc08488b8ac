// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/numbers/dtype.hpp"

namespace lockstep::kernels {

// gelu(x) = x Phi(x), where Phi is the normal distribution. At a level, a number has the same bits wherever it lies.

/// output = gelu(input), with an error of at most 3e-7 of |input|.
void gelu_output(std::int64_t count, const float* input, float* output);

/// The same output; then the derivatives d/dx gelu(x) take the place of the values.
void gelu_with_derivative(std::int64_t count, float* values, float* output);

/// input_gradient = gradient * d/dx gelu(x). Computed in float32; the derivative has an error of at most 3e-7.
void gelu_gradient(std::int64_t count, const float* input, const float* gradient, float* input_gradient);
void gelu_gradient(std::int64_t count, const BFloat16* input, const BFloat16* gradient, BFloat16* input_gradient);

}  // namespace lockstep::kernels
