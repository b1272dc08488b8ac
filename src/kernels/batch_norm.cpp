// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/batch_norm.hpp"

#include <algorithm>
#include <vector>

#include "core/numbers/processor_level.hpp"

namespace lockstep::kernels {

namespace {

constexpr std::int64_t kBlockElements = 8192;  // so many elements stay in the first-level cache between two loops

LOCKSTEP_INLINE float load(float value) { return value; }
LOCKSTEP_INLINE float load(BFloat16 value) { return to_float(value); }

LOCKSTEP_INLINE void store(float value, float& target) { target = value; }
LOCKSTEP_INLINE void store(float value, BFloat16& target) { target = to_bfloat16(value); }

std::int64_t rows_of_a_block(const NormRange& range) {
  return std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, range.end - range.begin));
}

template <class T>
LOCKSTEP_INLINE void statistics(const NormRange& range, const T* input, float* mean, float* variance) {
  const std::int64_t count = range.end - range.begin;
  std::vector<double> means(static_cast<std::size_t>(count));
  std::vector<double> squares(static_cast<std::size_t>(count));  // sums of the squared distances from the mean
  std::vector<float> sum(static_cast<std::size_t>(count));
  std::vector<float> square(static_cast<std::size_t>(count));
  const std::int64_t step = rows_of_a_block(range);
  for (std::int64_t first = 0; first < range.rows; first += step) {
    const std::int64_t last = std::min(range.rows, first + step);
    float* const s = sum.data();
    float* const q = square.data();
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) s[c] = q[c] = 0;
    for (std::int64_t m = first; m < last; ++m) {
      const T* const row = input + m * range.channels + range.begin;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c) s[c] += load(row[c]);
    }
    const float rows = static_cast<float>(last - first);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) s[c] /= rows;
    for (std::int64_t m = first; m < last; ++m) {
      const T* const row = input + m * range.channels + range.begin;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c) {
        const float distance = load(row[c]) - s[c];
        q[c] += distance * distance;
      }
    }
    const double here = static_cast<double>(last - first);
    const double share = here / static_cast<double>(last);
    const double weight = static_cast<double>(first) * share;
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) {
      const double difference = static_cast<double>(s[c]) - means[static_cast<std::size_t>(c)];
      means[static_cast<std::size_t>(c)] += difference * share;
      squares[static_cast<std::size_t>(c)] += static_cast<double>(q[c]) + difference * difference * weight;
    }
  }
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c) {
    mean[range.begin + c] = static_cast<float>(means[static_cast<std::size_t>(c)]);
    variance[range.begin + c] =
        static_cast<float>(squares[static_cast<std::size_t>(c)] / static_cast<double>(range.rows));
  }
}

template <bool kHasResidual, bool kHasRelu, class T>
LOCKSTEP_INLINE void output_rows(const NormRange& range, const NormFactors& factors, const T* input, const T* residual,
                                 T* output) {
  for (std::int64_t m = 0; m < range.rows; ++m) {
    const std::int64_t position = m * range.channels;
#pragma GCC ivdep
    for (std::int64_t c = range.begin; c < range.end; ++c) {
      float value = load(input[position + c]) * factors.scale[c] + factors.shift[c];
      if constexpr (kHasResidual) value += load(residual[position + c]);
      if constexpr (kHasRelu) value = value < 0 ? 0.0F : value;  // NaN stays
      store(value, output[position + c]);
    }
  }
}

template <class T>
LOCKSTEP_INLINE void output_of(const NormRange& range, const NormTail& tail, const NormFactors& factors, const T* input,
                               const T* residual, T* output) {
  if (tail.has_residual && tail.has_relu) return output_rows<true, true>(range, factors, input, residual, output);
  if (tail.has_residual) return output_rows<true, false>(range, factors, input, residual, output);
  if (tail.has_relu) return output_rows<false, true>(range, factors, input, residual, output);
  return output_rows<false, false>(range, factors, input, residual, output);
}

/// How the gradient before the ReLU is got.
enum class Mask { none, of_input, of_output };

template <Mask kMask, class T>
LOCKSTEP_INLINE void sum_rows(const NormRange& range, const NormFactors& factors, const T* gradient, const T* input,
                              const T* output, T* inner, float* sums, float* dot_sums) {
  const std::int64_t count = range.end - range.begin;
  std::vector<double> totals(2 * static_cast<std::size_t>(count));
  std::vector<float> block(2 * static_cast<std::size_t>(count));
  const std::int64_t step = rows_of_a_block(range);
  const float* const scale = factors.scale + range.begin;
  const float* const shift = factors.shift + range.begin;
  const float* const mean = factors.mean + range.begin;
  float* const sum = block.data();
  float* const dot = sum + count;
  for (std::int64_t first = 0; first < range.rows; first += step) {
    std::fill(block.begin(), block.end(), 0.0F);
    for (std::int64_t m = first; m < std::min(range.rows, first + step); ++m) {
      const std::int64_t position = m * range.channels + range.begin;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c) {
        const float x = load(input[position + c]);
        float g = load(gradient[position + c]);
        if constexpr (kMask == Mask::of_input) g = x * scale[c] + shift[c] <= 0 ? 0.0F : g;
        if constexpr (kMask == Mask::of_output) {
          g = load(output[position + c]) <= 0 ? 0.0F : g;
          store(g, inner[position + c]);
        }
        sum[c] += g;
        dot[c] += g * (x - mean[c]);
      }
    }
    for (std::size_t c = 0; c < block.size(); ++c) totals[c] += static_cast<double>(block[c]);
  }
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c) {
    sums[range.begin + c] = static_cast<float>(totals[static_cast<std::size_t>(c)]);
    dot_sums[range.begin + c] = static_cast<float>(totals[static_cast<std::size_t>(count + c)]);
  }
}

template <class T>
LOCKSTEP_INLINE void sums_of(const NormRange& range, const NormTail& tail, const NormFactors& factors,
                             const T* gradient, const T* input, const T* output, T* inner, float* sums,
                             float* dot_sums) {
  if (tail.has_relu && tail.has_residual)
    return sum_rows<Mask::of_output>(range, factors, gradient, input, output, inner, sums, dot_sums);
  if (tail.has_relu) return sum_rows<Mask::of_input>(range, factors, gradient, input, output, inner, sums, dot_sums);
  return sum_rows<Mask::none>(range, factors, gradient, input, output, inner, sums, dot_sums);
}

template <Mask kMask, class T>
LOCKSTEP_INLINE void gradient_rows(const NormRange& range, const NormFactors& factors, const float* offset,
                                   const float* slope, const T* gradient, const T* input, T* input_gradient) {
  for (std::int64_t m = 0; m < range.rows; ++m) {
    const std::int64_t position = m * range.channels;
#pragma GCC ivdep
    for (std::int64_t c = range.begin; c < range.end; ++c) {
      const float x = load(input[position + c]);
      float g = load(gradient[position + c]);
      if constexpr (kMask == Mask::of_input) g = x * factors.scale[c] + factors.shift[c] <= 0 ? 0.0F : g;
      store(factors.scale[c] * (g - offset[c] - (x - factors.mean[c]) * slope[c]), input_gradient[position + c]);
    }
  }
}

template <class T>
LOCKSTEP_INLINE void gradient_of(const NormRange& range, const NormTail& tail, const NormFactors& factors,
                                 const float* offset, const float* slope, const T* gradient, const T* input,
                                 T* input_gradient) {
  if (tail.has_relu && !tail.has_residual)
    return gradient_rows<Mask::of_input>(range, factors, offset, slope, gradient, input, input_gradient);
  return gradient_rows<Mask::none>(range, factors, offset, slope, gradient, input, input_gradient);
}

}  // namespace

#define LOCKSTEP_NORM_KERNELS(T)                                                                              \
  void norm_statistics(const NormRange& range, const T* input, float* mean, float* variance) {                \
    at_level<statistics<T>>(range, input, mean, variance);                                                    \
  }                                                                                                           \
  void norm_output(const NormRange& range, const NormTail& tail, const NormFactors& factors, const T* input,  \
                   const T* residual, T* output) {                                                            \
    at_level<output_of<T>>(range, tail, factors, input, residual, output);                                    \
  }                                                                                                           \
  void norm_sums(const NormRange& range, const NormTail& tail, const NormFactors& factors, const T* gradient, \
                 const T* input, const T* output, T* inner, float* sums, float* dot_sums) {                   \
    at_level<sums_of<T>>(range, tail, factors, gradient, input, output, inner, sums, dot_sums);               \
  }                                                                                                           \
  void norm_input_gradient(const NormRange& range, const NormTail& tail, const NormFactors& factors,          \
                           const float* offset, const float* slope, const T* gradient, const T* input,        \
                           T* input_gradient) {                                                               \
    at_level<gradient_of<T>>(range, tail, factors, offset, slope, gradient, input, input_gradient);           \
  }

LOCKSTEP_NORM_KERNELS(float)
LOCKSTEP_NORM_KERNELS(BFloat16)

}  // namespace lockstep::kernels
