// SPDX-License-Identifier: BSD-3-Clause
// The attention of one projection beside LibTorch's functions.
#include <lockstep/models/functional.hpp>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <limits>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace attention_test {

struct Size {
  std::int64_t samples;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t features;
  std::int64_t queries;
};

const Size kVisionTransformer = {2, 197, 3, 64, 197};
/// The last one suits no kernel.
const std::vector<Size> kSizes = {kVisionTransformer, {1, 5, 2, 16, 1}, {1, 17, 2, 48, 3}, {2, 7, 2, 5, 3}};

/// Some weights of a query are close to 1, most are small: products of up to 30, which float32 rounds by 2e-6, are
/// powers.
at::Tensor projection(const Size& size) {
  const std::int64_t count = size.samples * size.tokens * 3 * size.heads * size.features;
  return (at::sin(at::arange(count, at::kDouble).square() * 0.37) * 2)
      .to(at::kFloat)
      .view({size.samples, size.tokens, 3, size.heads, size.features});
}

at::Tensor output_gradient(const at::Tensor& output) {
  return at::cos(at::arange(output.numel(), at::kDouble) * 1.7).view(output.sizes());
}

/// LibTorch's functions for float64.
at::Tensor expected_output(const at::Tensor& qkv, std::int64_t queries) {
  const std::vector<at::Tensor> parts = qkv.to(at::kDouble).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor query = parts[0].slice(2, 0, queries) / std::sqrt(static_cast<double>(qkv.size(4)));
  return at::softmax(query.matmul(parts[1].transpose(2, 3)), -1).matmul(parts[2]).transpose(1, 2);
}

struct Result {
  at::Tensor output;
  at::Tensor gradient;  // gradient of the projection
};

Result expected(const at::Tensor& values, std::int64_t queries) {
  const at::Tensor qkv = values.to(at::kDouble).requires_grad_();
  const at::Tensor output = expected_output(qkv, queries);
  output.backward(output_gradient(output));
  return {output.detach(), qkv.grad()};
}

double largest_difference(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got.to(at::kDouble) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

/// Tests of the function that layers call.
Result of_function(const at::Tensor& values, std::int64_t queries) {
  const at::Tensor qkv = values.detach().clone().requires_grad_();
  const at::Tensor output = self_attention(qkv, queries);
  output.backward(output_gradient(output).to(output.scalar_type()));
  return {output.detach(), qkv.grad()};
}

TEST(SelfAttentionTest, BitsDoNotDependOnThreadsAndOtherSamples) {
  const kernels::ScopedChoice choice(kernels::Kernel::attention, true);
  const at::Tensor qkv = projection(kVisionTransformer);
  std::vector<Result> results;
  for (const int threads : {1, 2}) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    results.push_back(of_function(qkv, 197));
    at::set_num_threads(before);
  }
  EXPECT_TRUE(at::equal(results[0].output, results[1].output));
  EXPECT_TRUE(at::equal(results[0].gradient, results[1].gradient));
  const Result alone = of_function(qkv.slice(0, 0, 1).contiguous(), 197);
  EXPECT_TRUE(at::equal(alone.output, results[0].output.slice(0, 0, 1)));
}

TEST(SelfAttentionTest, AgreesWithLibTorchInEveryType) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.tokens);
    const at::Tensor qkv = projection(size);
    const Result wanted = expected(qkv, size.queries);
    testing::in_both_forms(kernels::Kernel::attention, [&] {
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        const Result got = of_function(qkv.to(type), size.queries);
        EXPECT_EQ(got.output.scalar_type(), type);
        EXPECT_LT(largest_difference(got.output, wanted.output), 5e-6);
        EXPECT_LT(largest_difference(got.gradient, wanted.gradient), 5e-6);
      }
    });
  }
}

TEST(SelfAttentionTest, RoundsUnderAutocast) {
  const at::Tensor qkv = projection(kVisionTransformer);
  const at::Tensor expected = expected_output(qkv, 197);
  testing::in_both_forms(kernels::Kernel::rounded_products, [&] {
    const Autocast autocast(c10::DeviceType::CPU, at::kBFloat16);
    const at::Tensor output = self_attention(qkv, 197);
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    EXPECT_LT(largest_difference(output, expected), 0.02);
  });
}

TEST(SelfAttentionTest, IsDifferentiableTwice) {
  std::vector<at::Tensor> results;
  for (const bool is_ours : {true, false}) {
    const at::Tensor qkv = projection({1, 9, 2, 16, 9}).requires_grad_();
    const at::Tensor output = is_ours ? self_attention(qkv, 4) : expected_output(qkv, 4);
    const at::Tensor gradient =
        torch::autograd::grad({output.square().sum()}, {qkv}, {}, true, /*create_graph=*/true)[0];
    gradient.square().sum().backward();
    results.push_back(qkv.grad());
  }
  EXPECT_LT(largest_difference(results[0], results[1].to(at::kDouble)), 1e-5);
}

TEST(AttentionTest, OfCausalModelsIsDifferentiableTwice) {
  std::vector<at::Tensor> results;
  for (const bool is_ours : {true, false}) {
    const at::Tensor qkv = projection({2, 9, 2, 16, 9}).to(is_ours ? at::kFloat : at::kDouble).requires_grad_();
    const std::vector<at::Tensor> parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor later = at::ones({9, 9}, at::kBool).triu(1);
    const at::Tensor products = parts[0].matmul(parts[1].transpose(2, 3)) / 4;  // sqrt(16)
    const at::Tensor output =
        is_ours
            ? attention(parts[0], parts[1], parts[2], /*dropout=*/0, /*is_causal=*/true)
            : at::softmax(products.masked_fill(later, -std::numeric_limits<double>::infinity()), -1).matmul(parts[2]);
    const at::Tensor gradient =
        torch::autograd::grad({output.square().sum()}, {qkv}, {}, true, /*create_graph=*/true)[0];
    gradient.square().sum().backward();
    results.push_back(qkv.grad());
  }
  EXPECT_LT(largest_difference(results[0], results[1]), 1e-5);
}

}  // namespace attention_test
}  // namespace lockstep::models
