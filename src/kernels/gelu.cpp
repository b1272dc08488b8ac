// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/gelu.hpp"

#include "core/numbers/processor_level.hpp"
#include "kernels/exponential.hpp"

namespace lockstep::kernels {

namespace {

LOCKSTEP_INLINE float value_of(float value) { return value; }
LOCKSTEP_INLINE float value_of(BFloat16 value) { return to_float(value); }

LOCKSTEP_INLINE void assign(float value, float& target) { target = value; }
LOCKSTEP_INLINE void assign(float value, BFloat16& target) { target = to_bfloat16(value); }

/// e^(-x^2 / 2)
LOCKSTEP_INLINE float power_of(float x) {
  const float exponent = -0.5F * x * x;
  return exponential(exponent < -87.0F ? -87.0F : exponent);
}

/// The normal distribution Phi(x). With z = |x| / sqrt(2) and t = 1 / (1 + 0.3 z), erfc(z) e^(z^2) is t times a
/// polynomial of t; its coefficients were fitted for the smallest maximum of the relative error over z >= 0 (2e-8).
/// @param power  power_of(x)
LOCKSTEP_INLINE float distribution(float x, float power) {
  constexpr float kInverseSqrt2 = 0.707106781F;
  const float size = x < 0 ? -x : x;
  const float t = 1.0F / (1.0F + 0.3F * kInverseSqrt2 * size);
  float sum = -0.129434289F;
  sum = sum * t + 0.485097468F;
  sum = sum * t - 0.511228514F;
  sum = sum * t + 0.546397381F;
  sum = sum * t - 0.0936328295F;
  sum = sum * t + 0.214436930F;
  sum = sum * t + 0.148482271F;
  sum = sum * t + 0.170691956F;
  sum = sum * t + 0.169189614F;
  const float tail = 0.5F * t * sum * power;
  return x < 0 ? tail : 1.0F - tail;
}

/// Phi(x) + x phi(x), with the density phi.
LOCKSTEP_INLINE float derivative(float x) {
  constexpr float kInverseSqrt2Pi = 0.398942280F;
  const float power = power_of(x);
  return distribution(x, power) + x * kInverseSqrt2Pi * power;
}

template <class T>
LOCKSTEP_INLINE void gradient_of(std::int64_t count, const T* input, const T* gradient, T* input_gradient) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    assign(value_of(gradient[i]) * derivative(value_of(input[i])), input_gradient[i]);
  }
}

LOCKSTEP_INLINE void output_of(std::int64_t count, const float* input, float* output) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) output[i] = input[i] * distribution(input[i], power_of(input[i]));
}

LOCKSTEP_INLINE void output_and_derivative_of(std::int64_t count, float* values, float* output) {
  constexpr float kInverseSqrt2Pi = 0.398942280F;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = values[i];
    const float power = power_of(x);
    const float below = distribution(x, power);
    output[i] = x * below;
    values[i] = below + x * kInverseSqrt2Pi * power;
  }
}

}  // namespace

void gelu_output(std::int64_t count, const float* input, float* output) { at_level<output_of>(count, input, output); }

void gelu_with_derivative(std::int64_t count, float* values, float* output) {
  at_level<output_and_derivative_of>(count, values, output);
}

void gelu_gradient(std::int64_t count, const float* input, const float* gradient, float* input_gradient) {
  at_level<gradient_of<float>>(count, input, gradient, input_gradient);
}

void gelu_gradient(std::int64_t count, const BFloat16* input, const BFloat16* gradient, BFloat16* input_gradient) {
  at_level<gradient_of<BFloat16>>(count, input, gradient, input_gradient);
}

}  // namespace lockstep::kernels
