// SPDX-License-Identifier: BSD-3-Clause
// Each result is compared with the definition in double. Its error may be 4 times that of the definition in float32:
// zero for small integers, which are exact in every order of the sums.
#include "kernels/convolution_products.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/depthwise.hpp"
#include "support/levels.hpp"
#include "unit/kernels/plain_convolution.hpp"

namespace lockstep::kernels {
namespace convolution_products_test {

using lockstep::testing::at_each_level;
using lockstep::testing::largest_error;
using lockstep::testing::PlainConvolution;
using lockstep::testing::random_numbers;
using lockstep::testing::UnalignedFloats;

constexpr double kFactor = 4;  // the order of the sums is another one

/// Rows and columns of tiles with and without a rest, several blocks of pixels, images smaller than the kernel. The
/// patches of the last ones are read in the images.
const std::vector<PlainConvolution> kPatchSizes = {
    {2, 9, 7, 8, 4, 3, 1, 1},  {2, 9, 7, 16, 12, 3, 2, 1}, {2, 9, 7, 24, 8, 1},          {1, 9, 7, 40, 4, 1, 2},
    {2, 8, 8, 8, 4, 2, 2},     {1, 9, 7, 8, 20, 7, 2, 3},  {2, 21, 23, 48, 28, 3, 1, 1}, {1, 16, 15, 32, 16, 3, 1, 2},
    {1, 3, 2, 16, 4, 7, 1, 3}, {2, 9, 7, 8, 4, 3},         {2, 21, 23, 16, 28, 3},       {3, 12, 9, 32, 12, 3, 2},
    {1, 5, 3, 48, 8, 3},       {2, 4, 200, 8, 16, 3},
};
const std::vector<PlainConvolution> kDepthwiseSizes = {
    {1, 9, 7, 8, 8, 3, 1, 1}, {2, 12, 11, 16, 16, 7, 1, 3}, {2, 9, 17, 40, 40, 5, 2, 2},  {1, 3, 2, 24, 24, 7, 1, 3},
    {2, 9, 7, 16, 16, 3, 2},  {1, 5, 29, 48, 48, 3, 1, 1},  {1, 14, 14, 56, 56, 5, 1, 2}, {3, 6, 31, 32, 32, 7, 2, 3},
};

PatchProduct patch_product(const PlainConvolution& size, const UnalignedFloats& images,
                           const UnalignedFloats& gradients) {
  return {.images = images.data(),
          .gradients = gradients.data(),
          .samples = size.samples,
          .height = size.height,
          .width = size.width,
          .channels = size.channels,
          .out_height = size.out_height(),
          .out_width = size.out_width(),
          .outputs = size.outputs,
          .kernel_height = size.kernel,
          .kernel_width = size.kernel,
          .stride = size.stride,
          .padding = size.padding};
}

DepthwiseConvolution depthwise(const PlainConvolution& size, const UnalignedFloats& images,
                               const UnalignedFloats& weight) {
  return {.images = images.data(),
          .weight = weight.data(),
          .bias = nullptr,
          .samples = size.samples,
          .height = size.height,
          .width = size.width,
          .channels = size.channels,
          .kernel = size.kernel,
          .out_height = size.out_height(),
          .out_width = size.out_width(),
          .stride = size.stride,
          .padding = size.padding};
}

/// Each size with random numbers and with integers, at each level.
template <class Check>
void for_each_size(const std::vector<PlainConvolution>& sizes, const Check& check) {
  at_each_level([&] {
    for (const PlainConvolution& size : sizes) {
      for (const bool are_integers : {false, true}) {
        SCOPED_TRACE(size.text());
        check(size, are_integers);
      }
    }
  });
}

TEST(PatchProductTest, IsTheSumOverPixels) {
  for_each_size(kPatchSizes, [](const PlainConvolution& size, bool are_integers) {
    const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 1, are_integers);
    const UnalignedFloats gradients = random_numbers(size.out_pixels() * size.outputs, 2, are_integers);
    const std::vector<double> exact = size.weight_gradient<double>(images, gradients);
    const double error = largest_error(size.weight_gradient<float>(images, gradients), exact);
    const PatchProduct product = patch_product(size, images, gradients);
    UnalignedFloats whole(static_cast<std::int64_t>(exact.size()), 1e30F);
    write_patch_product(product, 0, patch_panels(product), whole.data());
    EXPECT_LE(largest_error(whole, exact), kFactor * error);
    UnalignedFloats parts(whole.size(), 1e30F);
    for (std::int64_t i = 0; i < patch_panels(product); ++i) write_patch_product(product, i, i + 1, parts.data());
    EXPECT_EQ(parts, whole);
  });
}

/// Images without padding are those with it and zeros around them, so that both ways to read patches give the same
/// bits.
TEST(PatchProductTest, PatchesInImagesGiveTheBitsOfPackedOnes) {
  at_each_level([] {
    for (const std::int64_t channels : {8, 16, 48}) {
      const PlainConvolution packed{3, 7, 41, channels, 12, 3, 1, 1};
      const PlainConvolution in_images{3, 9, 43, channels, 12, 3};
      const UnalignedFloats images = random_numbers(packed.pixels() * channels, 1);
      const UnalignedFloats gradients = random_numbers(packed.out_pixels() * packed.outputs, 2);
      UnalignedFloats with_zeros(in_images.pixels() * channels, 0);
      for (std::int64_t row = 0; row < packed.samples * packed.height; ++row) {
        const std::int64_t target = row / packed.height * in_images.height + row % packed.height + 1;
        const std::int64_t length = packed.width * channels;
        std::copy_n(images.data() + row * length, length,
                    with_zeros.data() + (target * in_images.width + 1) * channels);
      }
      const PatchProduct product = patch_product(packed, images, gradients);
      UnalignedFloats expected(packed.outputs * packed.taps() * channels, 1e30F);
      UnalignedFloats result(expected.size(), 1e30F);
      write_patch_product(product, 0, patch_panels(product), expected.data());
      write_patch_product(patch_product(in_images, with_zeros, gradients), 0, patch_panels(product), result.data());
      EXPECT_EQ(result, expected) << channels;
    }
  });
}

TEST(DepthwiseTest, OutputIsTheConvolution) {
  for_each_size(kDepthwiseSizes, [](const PlainConvolution& size, bool are_integers) {
    const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 3, are_integers);
    const UnalignedFloats weight = random_numbers(size.channels * size.taps(), 4, are_integers);
    const std::vector<double> exact = size.depthwise_output<double>(images, weight);
    const double error = largest_error(size.depthwise_output<float>(images, weight), exact);
    UnalignedFloats result(static_cast<std::int64_t>(exact.size()), 1e30F);
    write_depthwise_convolution(depthwise(size, images, weight), 0, size.samples * depthwise_blocks(size.channels),
                                result.data());
    EXPECT_LE(largest_error(result, exact), kFactor * error);
  });
}

TEST(DepthwiseTest, AddsTheBiasAndTurnsTheKernels) {
  const PlainConvolution size = kDepthwiseSizes[2];
  const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 5, /*are_integers=*/true);
  const UnalignedFloats weight = random_numbers(size.channels * size.taps(), 6, /*are_integers=*/true);
  const UnalignedFloats bias = random_numbers(size.channels, 7, /*are_integers=*/true);
  UnalignedFloats turned = weight;
  for (std::int64_t c = 0; c < size.channels; ++c) {
    std::reverse(turned.data() + c * size.taps(), turned.data() + (c + 1) * size.taps());
  }
  std::vector<double> exact = size.depthwise_output<double>(images, turned);
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += bias[static_cast<std::int64_t>(i) % size.channels];
  at_each_level([&] {
    DepthwiseConvolution convolution = depthwise(size, images, weight);
    convolution.bias = bias.data();
    convolution.is_turned = true;
    UnalignedFloats result(static_cast<std::int64_t>(exact.size()), 1e30F);
    write_depthwise_convolution(convolution, 0, size.samples * depthwise_blocks(size.channels), result.data());
    EXPECT_EQ(largest_error(result, exact), 0);
  });
}

TEST(DepthwiseTest, GradientIsTheSumOverPixels) {
  for_each_size(kDepthwiseSizes, [](const PlainConvolution& size, bool are_integers) {
    const UnalignedFloats images = random_numbers(size.pixels() * size.channels, 8, are_integers);
    const UnalignedFloats gradients = random_numbers(size.out_pixels() * size.channels, 9, are_integers);
    const std::vector<double> exact = size.depthwise_gradient<double>(images, gradients);
    const double error = largest_error(size.depthwise_gradient<float>(images, gradients), exact);
    const PatchProduct product = patch_product(size, images, gradients);
    const std::int64_t blocks = depthwise_blocks(size.channels);
    UnalignedFloats whole(static_cast<std::int64_t>(exact.size()), 1e30F);
    write_depthwise_product(product, 0, blocks, whole.data());
    EXPECT_LE(largest_error(whole, exact), kFactor * error);
    UnalignedFloats parts(whole.size(), 1e30F);
    for (std::int64_t i = 0; i < blocks; ++i) write_depthwise_product(product, i, i + 1, parts.data());
    EXPECT_EQ(parts, whole);
  });
}

}  // namespace convolution_products_test
}  // namespace lockstep::kernels
