// SPDX-License-Identifier: BSD-3-Clause
// Small integers stay exact with tiles of 2x2 pixels, whose transforms multiply them by 1/4 at most. All ways must then
// have the same bits.
#include "models/layers/winograd.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"

namespace lockstep::models {
namespace winograd_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

at::Tensor last(const at::Tensor& images) { return images.contiguous(at::MemoryFormat::ChannelsLast); }

at::Tensor integers(at::IntArrayRef sizes) { return last(torch::randint(-4, 5, sizes, at::kFloat)); }

/// The gradient of the plain convolution.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                           std::int64_t padding) {
  const auto by_library =
      at::convolution_backward(gradient.to(at::kDouble), input.to(at::kDouble), weight.to(at::kDouble), std::nullopt,
                               {1, 1}, {padding, padding}, {1, 1}, false, {0, 0}, 1, {false, true, false});
  return std::get<1>(by_library).to(at::kFloat);
}

/// The same bits, or with tiles of 4x4 pixels, a distance that rounding explains.
bool agrees(const at::Tensor& got, const at::Tensor& wanted, std::int64_t side) {
  if (side == 2) return at::equal(got, wanted);
  const at::Tensor largest = wanted.abs().max().clamp_min(16);  // the product of the largest factors
  return (got - wanted).abs().max().item<float>() < 1e-5F * largest.item<float>();
}

class WinogradTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1); }

  torch::NoGradGuard no_grad_;
};

TEST_F(WinogradTest, EverySizeAgrees) {
  const std::vector<std::vector<std::int64_t>> sizes = {{1, 16, 1, 1}, {2, 16, 2, 3},  {3, 32, 4, 4},
                                                        {1, 48, 5, 7}, {2, 16, 13, 9}, {1, 16, 16, 1}};
  for (const auto& size : sizes) {
    for (std::int64_t padding = 0; padding <= 2; ++padding) {
      if (std::min(size[2], size[3]) + 2 * padding < 3) continue;
      for (const auto& [outputs, side] : {std::pair(16, 2), {32, 2}, {16, 4}, {32, 4}}) {
        SCOPED_TRACE(std::to_string(size[2]) + " x " + std::to_string(size[3]) + ", padding " +
                     std::to_string(padding) + ", tiles of " + std::to_string(side));
        const at::Tensor input = integers(size);
        const at::Tensor weight = integers({outputs, size[1], 3, 3});
        const at::Tensor transformed = winograd_weight(weight, /*is_turned=*/false, side);
        const at::Tensor expected = at::conv2d(input, weight, {}, 1, padding);
        const at::Tensor plain = winograd_convolution(input, transformed, {}, {}, padding, /*has_relu=*/false);
        EXPECT_TRUE(agrees(plain, expected, side));
        EXPECT_TRUE(plain.is_contiguous(at::MemoryFormat::ChannelsLast));

        const at::Tensor bias = torch::randint(-4, 5, {outputs}, at::kFloat);
        const at::Tensor residual = integers(expected.sizes());
        const at::Tensor sum = expected + bias.view({-1, 1, 1}) + residual;
        EXPECT_TRUE(agrees(winograd_convolution(input, transformed, bias, residual, padding, false), sum, side));
        EXPECT_TRUE(agrees(winograd_convolution(input, transformed, bias, residual, padding, true), sum.relu(), side));

        const at::Tensor turned = winograd_weight(weight, /*is_turned=*/true, side);
        const at::Tensor gradient = integers(expected.sizes());
        EXPECT_TRUE(agrees(winograd_convolution(gradient, turned, {}, {}, 2 - padding, false),
                           at::conv_transpose2d(gradient, weight, {}, 1, padding), side));
        const at::Tensor of_weight = at::full_like(weight, 1e30);
        write_winograd_gradient(input, gradient, padding, side, of_weight.mutable_data_ptr<float>());
        EXPECT_TRUE(agrees(of_weight, weight_gradient(gradient, input, weight, padding), side));
      }
    }
  }
}

TEST_F(WinogradTest, RoundingIsThatOfFloat32) {
  const at::Tensor input = last(torch::randn({2, 128, 10, 11}));
  const at::Tensor weight = last(torch::randn({64, 128, 3, 3}));
  const at::Tensor exact = at::conv2d(input.to(at::kDouble), weight.to(at::kDouble), {}, 1, 1);
  // The sum of the amounts, with which the error of a sum of rounded products grows.
  const at::Tensor amounts = at::conv2d(input.abs(), weight.abs(), {}, 1, 1);
  for (const std::int64_t side : {2, 4}) {
    const at::Tensor output = winograd_convolution(input, winograd_weight(weight, false, side), {}, {}, 1, false);
    EXPECT_LT(((output - exact).abs() / amounts).max().item<double>(), 4 * std::numeric_limits<float>::epsilon());
  }
}

// Tiles of 4x4 pixels cost more for the weight, and for pixels outside of the image.
TEST_F(WinogradTest, SideOfTilesDependsOnTheImages) {
  EXPECT_EQ(winograd_side(32, 32, 32), 4);
  EXPECT_EQ(winograd_side(1, 32, 32), 2);
  EXPECT_EQ(winograd_side(/*samples=*/0, 32, 32), 4);
  EXPECT_EQ(winograd_side(/*samples=*/0, 8, 8), 2);
  EXPECT_EQ(winograd_side(32, 8, 8), 4);
  EXPECT_EQ(winograd_side(64, 6, 6), 2);  // 4 large tiles with 36 products, or 9 small ones with 16
  EXPECT_EQ(winograd_gradient_side(at::empty({32, 16, 32, 32})), 4);
  EXPECT_EQ(winograd_gradient_side(at::empty({32, 16, 16, 16})), 2);
}

TEST_F(WinogradTest, OtherSamplesAndThreadsDoNotChangeTheBits) {
  const at::Tensor input = last(torch::randn({5, 32, 14, 15}));
  const at::Tensor transformed = winograd_weight(last(torch::randn({32, 32, 3, 3})), false, 4);
  const at::Tensor output = winograd_convolution(input, transformed, {}, {}, 1, false);
  for (std::int64_t n = 0; n < input.size(0); ++n) {
    const at::Tensor alone = winograd_convolution(last(input.slice(0, n, n + 1)), transformed, {}, {}, 1, false);
    EXPECT_TRUE(at::equal(alone[0], output[n])) << n;
  }
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(winograd_convolution(input, transformed, {}, {}, 1, false), output));
  at::set_num_threads(before);
}

TEST_F(WinogradTest, NanReachesTheOutput) {
  const at::Tensor input = at::zeros({1, 16, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast);
  input[0][3][2][2] = kNan;
  const at::Tensor weight = last(at::ones({16, 16, 3, 3}));
  for (const std::int64_t side : {2, 4}) {
    const at::Tensor transformed = winograd_weight(weight, /*is_turned=*/false, side);
    const at::Tensor output = winograd_convolution(input, transformed, {}, {}, 1, /*has_relu=*/true);
    EXPECT_TRUE(output.slice(2, 1, 4).slice(3, 1, 4).isnan().all().item<bool>());
  }
}

// The gradient of the weight does not depend on the kernel that computes it without Winograd's algorithm.
TEST_F(WinogradTest, IsUsedWithoutThePatchProduct) {
  const torch::AutoGradMode with_gradients(true);
  const kernels::ScopedChoice winograd(kernels::Kernel::winograd, true);
  const at::Tensor input = last(torch::randn({1, 16, 16, 16}));
  const at::Tensor values = last(torch::randn({16, 16, 3, 3}));
  std::vector<at::Tensor> gradients;
  for (const bool is_used : {true, false}) {
    const kernels::ScopedChoice patches(kernels::Kernel::patch_product, is_used);
    const at::Tensor weight = values.clone().requires_grad_();
    models::convolution(input, weight, {}, {.padding = 1}).square().sum().backward();
    gradients.push_back(weight.grad());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

}  // namespace winograd_test
}  // namespace lockstep::models
