// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/flop_counter.hpp"

#include <lockstep/models/functional.hpp>

#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/types.h>

#include "support/levels.hpp"

namespace lockstep::engine {
namespace flop_counter_test {

template <class Work>
std::int64_t flops_in(const Work& work) {
  const FlopCounter counter;
  work();
  return counter.count();
}

TEST(FlopCounterTest, ProductsCountTwoPerMultiplication) {
  const at::Tensor a = at::ones({3, 5});
  const at::Tensor b = at::ones({5, 7});
  EXPECT_EQ(flops_in([&] { at::mm(a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_in([&] { at::addmm(at::ones({7}), a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_in([&] { at::bmm(at::ones({2, 3, 5}), at::ones({2, 5, 7})); }), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_in([&] { at::linear(at::ones({4, 3, 5}), at::ones({7, 5}), at::ones({7})); }), 2 * 12 * 5 * 7);
  EXPECT_EQ(flops_in([&] { at::add(a, a); }), 0);
}

// Outputs: (9 + 2 - 3) / 2 + 1 = 5 rows and 6 columns of 8 channels; each needs 4 / 2 x 3 x 3 multiplications.
TEST(FlopCounterTest, Convolutions) {
  const at::Tensor images = at::ones({2, 4, 9, 11});
  const auto options = torch::nn::functional::Conv2dFuncOptions().stride(2).padding(1).groups(2);
  EXPECT_EQ(flops_in([&] {
              torch::nn::functional::conv2d(images, at::ones({8, 2, 3, 3}), options);
            }),
            2 * 2 * 8 * 5 * 6 * 2 * 9);
  EXPECT_EQ(flops_in([&] { at::conv_transpose2d(images, at::ones({4, 3, 2, 2})); }), 2 * (2 * 4 * 99) * 3 * 4);
}

// Layers compute them by other functions than at::linear and at::conv2d where these are faster.
TEST(FlopCounterTest, ProductsOfLayers) {
  const at::Tensor weight = at::ones({32, 64});
  EXPECT_EQ(flops_in([&] { models::linear(at::ones({300, 64}), weight, at::ones({32})); }), 2 * 300 * 64 * 32);
  const at::Tensor images = at::ones({2, 64, 20, 10}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(flops_in([&] {
              models::convolution(images, weight.view({32, 64, 1, 1}), {}, {.stride = 2});
            }),
            2 * (2 * 10 * 5) * 64 * 32);
}

// Lockstep has kernels of its own for these shapes at some levels.
TEST(FlopCounterTest, KernelsOfLockstepCountAsTheLibraryDoes) {
  testing::at_each_level([] {
    const at::Tensor images = at::ones({2, 32, 20, 10}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor weight = at::ones({16, 32, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    EXPECT_EQ(flops_in([&] { models::convolution(images, weight, {}, {.padding = 1}); }),
              2 * (2 * 16 * 20 * 10) * 32 * 9);
    EXPECT_EQ(flops_in([&] {
                models::convolution(images, at::ones({32, 1, 7, 7}), {}, {.padding = 3, .groups = 32});
              }),
              2 * (2 * 32 * 20 * 10) * 49);
    const at::Tensor qkv = at::ones({2, 5, 3, 4, 16});  // 5 tokens, 4 heads of 16 features
    EXPECT_EQ(flops_in([&] { models::self_attention(qkv, 5); }), 2 * 2 * (2 * 4) * 5 * 5 * 16);
  });
}

TEST(FlopCounterTest, Attention) {
  const at::Tensor query = at::ones({2, 3, 8, 16});
  const at::Tensor keys = at::ones({2, 3, 8, 16});
  EXPECT_EQ(flops_in([&] { at::scaled_dot_product_attention(query, keys, keys); }), 2 * 2 * 2 * 3 * 8 * 8 * 16);
}

TEST(FlopCounterTest, ThePeakIsMeasured) {
  const double peak = measured_peak_flops(at::kCPU, at::kFloat);
  EXPECT_GT(peak, 1e8);
  EXPECT_LT(peak, 1e14);
}

}  // namespace flop_counter_test
}  // namespace lockstep::engine
