// SPDX-License-Identifier: BSD-3-Clause
// Each result is compared with the definition in double. Its error may be 4 times that of the definition in float32:
// zero for small integers, which the transforms multiply by 1/4 at most.
#include "kernels/winograd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/levels.hpp"
#include "unit/kernels/plain_convolution.hpp"

namespace lockstep::kernels {
namespace winograd_test {

using lockstep::testing::at_each_level;
using lockstep::testing::largest_error;
using lockstep::testing::PlainConvolution;
using lockstep::testing::random_numbers;
using lockstep::testing::UnalignedFloats;

constexpr double kFactor = 4;

/// One panel, and odd and even numbers of them; blocks of tiles with and without a rest; odd sides of the output.
const std::vector<PlainConvolution> kSizes = {
    {1, 1, 1, 16, 16, 3, 1, 1}, {2, 5, 7, 32, 48, 3, 1, 1},   {1, 13, 9, 48, 16, 3, 1, 2},
    {3, 8, 8, 16, 32, 3, 1, 0}, {2, 12, 19, 64, 32, 3, 1, 1}, {1, 16, 4, 32, 64, 3, 1, 2},
};

WinogradTask task_of(const PlainConvolution& size, const UnalignedFloats& images) {
  return {.images = images.data(),
          .height = size.height,
          .width = size.width,
          .channels = size.channels,
          .out_height = size.out_height(),
          .out_width = size.out_width(),
          .outputs = size.outputs,
          .padding = size.padding};
}

/// @param weight  of `size`; turned, of the convolution of which `size` is the gradient of the input
UnalignedFloats transformed(const PlainConvolution& size, const UnalignedFloats& weight, bool is_turned) {
  UnalignedFloats result(kWinogradPositions * size.channels * size.outputs);
  for (std::int64_t panel = 0; panel < size.outputs / kWinogradPanel; ++panel) {
    write_winograd_panel(weight.data(), is_turned ? size.channels : size.outputs,
                         is_turned ? size.outputs : size.channels, panel, is_turned, result.data());
  }
  return result;
}

UnalignedFloats output_of(const PlainConvolution& size, WinogradTask task, const UnalignedFloats& weight) {
  task.weight = weight.data();
  UnalignedFloats left(kWinogradPositions * kWinogradTiles * size.channels);
  UnalignedFloats products(kWinogradPositions * kWinogradTiles * size.outputs);
  UnalignedFloats result(size.out_pixels() * size.outputs, 1e30F);
  const std::int64_t tiles = task.tiles(size.samples);
  for (std::int64_t first = 0; first < tiles; first += kWinogradTiles) {
    write_winograd_tiles(task, first, std::min(kWinogradTiles, tiles - first), left.data(), products.data(),
                         result.data());
  }
  return result;
}

/// @param step  channels whose gradient is computed in one call
UnalignedFloats gradient_of(const PlainConvolution& size, const WinogradTask& task, const UnalignedFloats& gradients,
                            std::int64_t step) {
  UnalignedFloats left(kWinogradPositions * size.outputs * kSummedTiles);
  UnalignedFloats result(size.outputs * size.taps() * size.channels, 1e30F);
  const std::int64_t tiles = task.tiles(size.samples);
  for (std::int64_t begin = 0; begin < size.channels; begin += step) {
    const std::int64_t channels = std::min(step, size.channels - begin);
    UnalignedFloats right(kWinogradPositions * channels * kSummedTiles);
    UnalignedFloats sums(kWinogradPositions * size.outputs * channels);
    for (std::int64_t first = 0; first < tiles; first += kSummedTiles) {
      add_winograd_tiles(task, gradients.data(), first, std::min(kSummedTiles, tiles - first), begin, begin + channels,
                         left.data(), right.data(), sums.data());
    }
    write_winograd_taps(sums.data(), size.outputs, channels, result.data() + begin, size.channels);
  }
  return result;
}

/// Each size at each level.
template <class Check>
void for_each_size(const Check& check) {
  at_each_level([&] {
    for (const PlainConvolution& size : kSizes) {
      SCOPED_TRACE(size.text());
      check(size);
    }
  });
}

TEST(WinogradKernelsTest, OutputIsTheConvolution) {
  for_each_size([](const PlainConvolution& size) {
    for (const bool are_integers : {false, true}) {
      const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 1, are_integers);
      const UnalignedFloats weight = random_numbers(size.outputs * size.taps() * size.channels, 2, are_integers);
      const std::vector<double> exact = size.output<double>(images, weight);
      const double error = largest_error(size.output<float>(images, weight), exact);
      const UnalignedFloats output =
          output_of(size, task_of(size, images), transformed(size, weight, /*is_turned=*/false));
      EXPECT_LE(largest_error(output, exact), kFactor * error);
    }
  });
}

/// The kernel of the gradient of the input: [channels, 3, 3, outputs], turned by 180 degrees.
UnalignedFloats turned(const PlainConvolution& size, const UnalignedFloats& weight) {
  UnalignedFloats result(weight.size());
  for (std::int64_t o = 0; o < size.outputs; ++o) {
    for (std::int64_t tap = 0; tap < size.taps(); ++tap) {
      for (std::int64_t c = 0; c < size.channels; ++c) {
        result[(c * size.taps() + size.taps() - 1 - tap) * size.outputs + o] =
            weight[(o * size.taps() + tap) * size.channels + c];
      }
    }
  }
  return result;
}

TEST(WinogradKernelsTest, TurnedWeightIsThatOfTheGradientOfTheInput) {
  for_each_size([](const PlainConvolution& size) {
    const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 3, /*are_integers=*/true);
    const UnalignedFloats weight = random_numbers(size.outputs * size.taps() * size.channels, 4, /*are_integers=*/true);
    const UnalignedFloats output =
        output_of(size, task_of(size, images), transformed(size, turned(size, weight), /*is_turned=*/true));
    EXPECT_EQ(largest_error(output, size.output<double>(images, weight)), 0);
  });
}

TEST(WinogradKernelsTest, AddsTheBiasAndTheResidualBeforeTheReLU) {
  const PlainConvolution size = kSizes[1];
  const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 5, /*are_integers=*/true);
  const UnalignedFloats weight = random_numbers(size.outputs * size.taps() * size.channels, 6, /*are_integers=*/true);
  const UnalignedFloats bias = random_numbers(size.outputs, 7, /*are_integers=*/true);
  const UnalignedFloats residual = random_numbers(size.out_pixels() * size.outputs, 8, /*are_integers=*/true);
  std::vector<double> exact = size.output<double>(images, weight);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    exact[i] = std::max(0.0, exact[i] + bias[place % size.outputs] + residual[place]);
  }
  at_each_level([&] {
    WinogradTask task = task_of(size, images);
    task.bias = bias.data();
    task.residual = residual.data();
    task.has_relu = true;
    EXPECT_EQ(largest_error(output_of(size, task, transformed(size, weight, /*is_turned=*/false)), exact), 0);
  });
}

TEST(WinogradKernelsTest, GradientOfTheWeightIsTheSumOverPixels) {
  for_each_size([](const PlainConvolution& size) {
    for (const bool are_integers : {false, true}) {
      const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 9, are_integers);
      const UnalignedFloats gradients = random_numbers(size.out_pixels() * size.outputs, 10, are_integers);
      const std::vector<double> exact = size.weight_gradient<double>(images, gradients);
      const double error = largest_error(size.weight_gradient<float>(images, gradients), exact);
      const WinogradTask task = task_of(size, images);
      const UnalignedFloats whole = gradient_of(size, task, gradients, size.channels);
      EXPECT_LE(largest_error(whole, exact), kFactor * error);
      EXPECT_EQ(gradient_of(size, task, gradients, kWinogradPanel), whole);
    }
  });
}

}  // namespace winograd_test
}  // namespace lockstep::kernels
