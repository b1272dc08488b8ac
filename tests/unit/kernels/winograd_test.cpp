// SPDX-License-Identifier: BSD-3-Clause
// Each result is compared with the definition in double. Its error may be 4 times that of the definition in float32.
// Tiles of 2x2 pixels have none for small integers, which the transforms multiply by 1/4 at most.
#include "kernels/winograd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
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
constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

/// One panel, and odd and even numbers of them; blocks of tiles with and without a rest; odd sides of the output.
const std::vector<PlainConvolution> kSizes = {
    {1, 1, 1, 16, 16, 3, 1, 1}, {2, 5, 7, 32, 48, 3, 1, 1},   {1, 13, 9, 48, 16, 3, 1, 2},
    {3, 8, 8, 16, 32, 3, 1, 0}, {2, 12, 19, 64, 32, 3, 1, 1}, {1, 16, 4, 32, 64, 3, 1, 2},
};

constexpr std::int64_t kSides[] = {2, 4};

/// The error that rounding may cause in a sum of products of small integers.
double rounding_of_integers(const PlainConvolution& size, std::int64_t side) {
  constexpr double kLargestProduct = 16;
  const double amount = kLargestProduct * static_cast<double>(size.channels * size.taps());
  return side == 2 ? 0 : kFactor * amount * kEpsilon;
}

/// Memory for `count` numbers of each position.
UnalignedFloats numbers_of_positions(std::int64_t side, std::int64_t count) {
  return UnalignedFloats(winograd_positions(side) * winograd_distance(count));
}

WinogradTask task_of(const PlainConvolution& size, const UnalignedFloats& images, std::int64_t side) {
  return {.side = side,
          .images = images.data(),
          .height = size.height,
          .width = size.width,
          .channels = size.channels,
          .out_height = size.out_height(),
          .out_width = size.out_width(),
          .outputs = size.outputs,
          .padding = size.padding};
}

/// @param weight  of `size`; turned, of the convolution of which `size` is the gradient of the input
UnalignedFloats transformed(const PlainConvolution& size, const UnalignedFloats& weight, bool is_turned,
                            std::int64_t side) {
  UnalignedFloats result = numbers_of_positions(side, size.channels * size.outputs);
  for (std::int64_t panel = 0; panel < size.outputs / kWinogradPanel; ++panel) {
    write_winograd_panel(weight.data(), is_turned ? size.channels : size.outputs,
                         is_turned ? size.outputs : size.channels, panel, is_turned, side, result.data());
  }
  return result;
}

UnalignedFloats output_of(const PlainConvolution& size, WinogradTask task, const UnalignedFloats& weight) {
  task.weight = weight.data();
  UnalignedFloats left = numbers_of_positions(task.side, kWinogradTiles * size.channels);
  UnalignedFloats products = numbers_of_positions(task.side, kWinogradTiles * size.outputs);
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
  UnalignedFloats left = numbers_of_positions(task.side, size.outputs * kSummedTiles);
  UnalignedFloats result(size.outputs * size.taps() * size.channels, 1e30F);
  const std::int64_t tiles = task.tiles(size.samples);
  for (std::int64_t begin = 0; begin < size.channels; begin += step) {
    const std::int64_t channels = std::min(step, size.channels - begin);
    UnalignedFloats right = numbers_of_positions(task.side, channels * kSummedTiles);
    UnalignedFloats sums = numbers_of_positions(task.side, size.outputs * channels);
    for (std::int64_t first = 0; first < tiles; first += kSummedTiles) {
      add_winograd_tiles(task, gradients.data(), first, std::min(kSummedTiles, tiles - first), begin, begin + channels,
                         left.data(), right.data(), sums.data());
    }
    write_winograd_taps(sums.data(), size.outputs, channels, task.side, result.data() + begin, size.channels);
  }
  return result;
}

TEST(WinogradKernelsTest, OutputIsTheConvolution) {
  for (const PlainConvolution& size : kSizes) {
    for (const bool are_integers : {false, true}) {
      SCOPED_TRACE(size.text());
      const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 1, are_integers);
      const UnalignedFloats weight = random_numbers(size.outputs * size.taps() * size.channels, 2, are_integers);
      const std::vector<double> exact = size.output<double>(images, weight);
      const double error = largest_error(size.output<float>(images, weight), exact);
      at_each_level([&] {
        for (const std::int64_t side : kSides) {
          const UnalignedFloats factors = transformed(size, weight, /*is_turned=*/false, side);
          const double most = are_integers ? rounding_of_integers(size, side) : kFactor * error;
          EXPECT_LE(largest_error(output_of(size, task_of(size, images, side), factors), exact), most);
        }
      });
    }
  }
}

/// The kernel of the gradient of the input: [channels, 3, 3, outputs], turned by 180 degrees.
TEST(WinogradKernelsTest, TurnedWeightIsThatOfTheGradientOfTheInput) {
  for (const PlainConvolution& size : kSizes) {
    SCOPED_TRACE(size.text());
    const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 3, /*are_integers=*/true);
    const UnalignedFloats turned = random_numbers(size.outputs * size.taps() * size.channels, 4, /*are_integers=*/true);
    UnalignedFloats weight(turned.size());
    for (std::int64_t o = 0; o < size.outputs; ++o) {
      for (std::int64_t tap = 0; tap < size.taps(); ++tap) {
        for (std::int64_t c = 0; c < size.channels; ++c) {
          weight[(c * size.taps() + size.taps() - 1 - tap) * size.outputs + o] =
              turned[(o * size.taps() + tap) * size.channels + c];
        }
      }
    }
    const std::vector<double> exact = size.output<double>(images, turned);
    at_each_level([&] {
      for (const std::int64_t side : kSides) {
        const UnalignedFloats factors = transformed(size, weight, /*is_turned=*/true, side);
        const UnalignedFloats output = output_of(size, task_of(size, images, side), factors);
        EXPECT_LE(largest_error(output, exact), rounding_of_integers(size, side));
      }
    });
  }
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
    for (const std::int64_t side : kSides) {
      WinogradTask task = task_of(size, images, side);
      task.bias = bias.data();
      task.residual = residual.data();
      task.has_relu = true;
      const UnalignedFloats output = output_of(size, task, transformed(size, weight, /*is_turned=*/false, side));
      EXPECT_LE(largest_error(output, exact), rounding_of_integers(size, side));
    }
  });
}

TEST(WinogradKernelsTest, GradientOfTheWeightIsTheSumOverPixels) {
  for (const PlainConvolution& size : kSizes) {
    for (const bool are_integers : {false, true}) {
      SCOPED_TRACE(size.text());
      const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 9, are_integers);
      const UnalignedFloats gradients = random_numbers(size.out_pixels() * size.outputs, 10, are_integers);
      const std::vector<double> exact = size.weight_gradient<double>(images, gradients);
      const double error = largest_error(size.weight_gradient<float>(images, gradients), exact);
      at_each_level([&] {
        for (const std::int64_t side : kSides) {
          const WinogradTask task = task_of(size, images, side);
          const UnalignedFloats whole = gradient_of(size, task, gradients, size.channels);
          const double pixels = static_cast<double>(size.out_pixels());
          const double of_integers = side == 2 ? 0 : kFactor * 16 * pixels * kEpsilon;
          // The product of one pixel is rounded once.
          const double of_numbers = kFactor * (side == 2 ? error : std::max(error, kEpsilon));
          EXPECT_LE(largest_error(whole, exact), are_integers ? of_integers : of_numbers);
          EXPECT_EQ(gradient_of(size, task, gradients, kWinogradPanel), whole);
        }
      });
    }
  }
}

}  // namespace winograd_test
}  // namespace lockstep::kernels
