// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/numbers/processor_level.hpp"

// The transforms of winograd.cpp in one direction; images need them in both. V is a vector of numbers.
namespace lockstep::kernels {

/// The transforms for tiles with kSide output pixels: those of the Toom-Cook algorithm, which evaluates polynomials at
/// kReach points.
template <std::int64_t kSide>
struct Line;

/// The points 0, 1, -1 and infinity.
template <>
struct Line<2> {
  static constexpr std::int64_t kReach = 4;  ///< pixels that a tile reads

  template <class V>
  LOCKSTEP_INLINE static void transform_pixels(const V (&pixels)[kReach], V (&values)[kReach]) {
    values[0] = pixels[0] - pixels[2];
    values[1] = pixels[1] + pixels[2];
    values[2] = pixels[2] - pixels[1];
    values[3] = pixels[1] - pixels[3];
  }

  template <class V>
  LOCKSTEP_INLINE static void transform_taps(const V (&taps)[3], V (&values)[kReach]) {
    const V outer = (taps[0] + taps[2]) * 0.5F;
    const V inner = taps[1] * 0.5F;
    values[0] = taps[0];
    values[1] = outer + inner;
    values[2] = outer - inner;
    values[3] = taps[2];
  }

  template <class V>
  LOCKSTEP_INLINE static void transform_products(const V (&products)[kReach], V (&outputs)[2]) {
    outputs[0] = products[0] + products[1] + products[2];
    outputs[1] = products[1] - products[2] - products[3];
  }

  /// The transposed transform of the products.
  template <class V>
  LOCKSTEP_INLINE static void transform_gradients(const V (&outputs)[2], V (&values)[kReach]) {
    values[0] = outputs[0];
    values[1] = outputs[0] + outputs[1];
    values[2] = outputs[0] - outputs[1];
    values[3] = -outputs[1];
  }

  /// The transposed transform of the taps.
  template <class V>
  LOCKSTEP_INLINE static void transform_sums(const V (&sums)[kReach], V (&taps)[3]) {
    const V first_inner = sums[1] * 0.5F;
    const V second_inner = sums[2] * 0.5F;
    taps[0] = sums[0] + (first_inner + second_inner);
    taps[1] = first_inner - second_inner;
    taps[2] = (first_inner + second_inner) + sums[3];
  }
};

/// The points 0, a, -a, b, -b and infinity. With a = 3/4 and b = 3/2, the rounding error is about twice that of a
/// direct convolution; with the usual points 1 and 2, it is 4 to 5 times that.
template <>
struct Line<4> {
  static constexpr std::int64_t kReach = 6;

  template <class V>
  LOCKSTEP_INLINE static void transform_pixels(const V (&pixels)[kReach], V (&values)[kReach]) {
    const V even_a = pixels[4] - kB2 * pixels[2];
    const V odd_a = kA * (pixels[3] - kB2 * pixels[1]);
    const V even_b = pixels[4] - kA2 * pixels[2];
    const V odd_b = kB * (pixels[3] - kA2 * pixels[1]);
    values[0] = kA2 * kB2 * pixels[0] - (kA2 + kB2) * pixels[2] + pixels[4];
    write_pairs(even_a, odd_a, even_b, odd_b, values);
    values[5] = kA2 * kB2 * pixels[1] - (kA2 + kB2) * pixels[3] + pixels[5];
  }

  template <class V>
  LOCKSTEP_INLINE static void transform_taps(const V (&taps)[3], V (&values)[kReach]) {
    const V even_a = kFactorA * taps[0] + kFactorA * kA2 * taps[2];
    const V odd_a = kFactorA * kA * taps[1];
    const V even_b = kFactorB * taps[0] + kFactorB * kB2 * taps[2];
    const V odd_b = kFactorB * kB * taps[1];
    values[0] = kFactor0 * taps[0];
    write_pairs(even_a, odd_a, even_b, odd_b, values);
    values[5] = taps[2];
  }

  template <class V>
  LOCKSTEP_INLINE static void transform_products(const V (&products)[kReach], V (&outputs)[4]) {
    const V even_a = products[1] + products[2];
    const V odd_a = products[1] - products[2];
    const V even_b = products[3] + products[4];
    const V odd_b = products[3] - products[4];
    outputs[0] = products[0] + even_a + even_b;
    outputs[1] = kA * odd_a + kB * odd_b;
    outputs[2] = kA2 * even_a + kB2 * even_b;
    outputs[3] = kA * kA2 * odd_a + kB * kB2 * odd_b + products[5];
  }

  template <class V>
  LOCKSTEP_INLINE static void transform_gradients(const V (&outputs)[4], V (&values)[kReach]) {
    const V even_a = outputs[0] + kA2 * outputs[2];
    const V odd_a = kA * outputs[1] + kA * kA2 * outputs[3];
    const V even_b = outputs[0] + kB2 * outputs[2];
    const V odd_b = kB * outputs[1] + kB * kB2 * outputs[3];
    values[0] = outputs[0];
    write_pairs(even_a, odd_a, even_b, odd_b, values);
    values[5] = outputs[3];
  }

  template <class V>
  LOCKSTEP_INLINE static void transform_sums(const V (&sums)[kReach], V (&taps)[3]) {
    const V even_a = kFactorA * (sums[1] + sums[2]);
    const V odd_a = kFactorA * kA * (sums[1] - sums[2]);
    const V even_b = kFactorB * (sums[3] + sums[4]);
    const V odd_b = kFactorB * kB * (sums[3] - sums[4]);
    taps[0] = kFactor0 * sums[0] + even_a + even_b;
    taps[1] = odd_a + odd_b;
    taps[2] = kA2 * even_a + kB2 * even_b + sums[5];
  }

 private:
  /// The values at a, -a, b and -b of a polynomial that is given as the sum of an even and an odd one.
  template <class V>
  LOCKSTEP_INLINE static void write_pairs(const V& even_a, const V& odd_a, const V& even_b, const V& odd_b,
                                          V (&values)[kReach]) {
    values[1] = even_a + odd_a;
    values[2] = even_a - odd_a;
    values[3] = even_b + odd_b;
    values[4] = even_b - odd_b;
  }

  static constexpr float kA = 0.75F;
  static constexpr float kB = 1.5F;
  static constexpr float kA2 = kA * kA;
  static constexpr float kB2 = kB * kB;
  // The products of the distances of a point from the others.
  static constexpr float kFactor0 = 1 / (kA2 * kB2);
  static constexpr float kFactorA = 1 / (2 * kA2 * (kA2 - kB2));
  static constexpr float kFactorB = 1 / (2 * kB2 * (kB2 - kA2));
};

}  // namespace lockstep::kernels
