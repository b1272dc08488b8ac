// SPDX-License-Identifier: BSD-3-Clause
// Convolutions whose weights are kept for oneDNN, with the batch norm behind them, beside the layers one by one.
#include "models/layers/constant_weights.hpp"

#include <lockstep/models/functional.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "models/layers/sequence.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace constant_weights_test {

struct Case {
  std::int64_t in;
  std::int64_t out;
  std::int64_t kernel;
  Conv2dOptions options;
};

const std::vector<Case> kCases = {
    {16, 24, 1, {.has_bias = false}},
    {16, 24, 1, {.stride = 2, .has_bias = true}},
    {8, 16, 3, {.has_bias = false}},
    {32, 16, 3, {.has_bias = true}},
    {16, 48, 3, {.has_bias = false, .padding = 2}},
    {3, 8, 7, {.stride = 2, .has_bias = true}},
    {16, 16, 3, {.has_bias = false, .groups = 16}},
    {16, 32, 3, {.has_bias = true, .groups = 2}},
    {5, 7, 3, {.has_bias = true, .padding = 0}},
    {8, 1, 3, {.has_bias = false}},
    {8, 16, 7, {.stride = 16, .has_bias = false}},  // reduces to one pixel
    {8, 16, 1, {.stride = 16, .has_bias = false}},
};

at::Tensor images(at::IntArrayRef sizes) { return torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast); }

/// A norm with statistics and factors that are not those of the beginning.
std::shared_ptr<BatchNorm> norm_of(std::int64_t channels, bool is_affine = true) {
  const auto norm = std::make_shared<BatchNorm>(channels, BatchNormOptions{.is_affine = is_affine});
  const torch::NoGradGuard no_grad;
  norm->running_mean.copy_(torch::randn({channels}));
  norm->running_var.copy_(torch::rand({channels}) + 0.5);
  if (is_affine) {
    norm->weight.copy_(torch::randn({channels}));
    norm->bias.copy_(torch::randn({channels}));
  }
  norm->eval();
  return norm;
}

/// A result in float64, and what it would be if all terms of its sums were positive, which bounds the rounding.
struct Exact {
  at::Tensor values;
  at::Tensor sizes;
  double terms;  ///< number of terms of each sum

  Exact relu() const { return {values.relu(), sizes, terms}; }
  Exact plus(const at::Tensor& other) const { return {values + other, sizes + other.abs(), terms + 1}; }
};

at::Tensor in_double(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kDouble) : tensor; }

Exact exact(const Conv2d& conv, const at::Tensor& input) {
  const Convolution& geometry = conv.geometry();
  const auto run = [&](const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias) {
    return at::conv2d(images, weight, bias, geometry.stride, geometry.padding, 1, geometry.groups);
  };
  const at::Tensor bias = in_double(conv.bias);
  return {run(in_double(input), in_double(conv.weight), bias),
          run(in_double(input).abs(), in_double(conv.weight).abs(), bias.defined() ? bias.abs() : bias),
          static_cast<double>(conv.weight[0].numel() + 1)};
}

Exact exact(const BatchNorm& norm, const Exact& input) {
  const auto by_channel = [](const at::Tensor& tensor) { return in_double(tensor).view({1, -1, 1, 1}); };
  at::Tensor factor = (by_channel(norm.running_var) + norm.eps()).rsqrt();
  if (norm.weight.defined()) factor = factor * by_channel(norm.weight);
  const at::Tensor shift = norm.bias.defined() ? by_channel(norm.bias) : at::zeros_like(factor);
  const at::Tensor mean = by_channel(norm.running_mean);
  return {(input.values - mean) * factor + shift, (input.sizes + mean.abs()) * factor.abs() + shift.abs(),
          input.terms + 8};  // the roundings of factor, shift and their products
}

/// The error as a part of what rounding to float32 can cause: n roundings add up to 8 sqrt(n) 2^-24 of the size with a
/// probability of 1 - 2e-14 (Higham and Mary, 2019).
double error(const at::Tensor& got, const Exact& wanted) {
  const at::Tensor bound = wanted.sizes * (8 * std::sqrt(wanted.terms) * 0x1p-24);
  return ((got.to(at::kDouble) - wanted.values).abs() / bound).max().item<double>();
}

double difference(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got - wanted).abs().max() / wanted.abs().max()).item<double>();
}

class ConstantWeightsTest : public ::testing::Test {
 protected:
  ConstantWeightsTest() { torch::manual_seed(1); }

  torch::NoGradGuard no_grad_;
};

TEST_F(ConstantWeightsTest, OnePassAgreesWithTheLayers) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(std::to_string(each.in) + " to " + std::to_string(each.out) + ", kernel " +
                 std::to_string(each.kernel));
    Conv2d conv(each.in, each.out, each.kernel, each.options);
    const at::Tensor input = images({2, each.in, 13, 11});
    const Exact plain = exact(conv, input);
    const at::Tensor residual = images(plain.values.sizes());
    for (const bool is_affine : {true, false}) {
      const auto norm = norm_of(each.out, is_affine);
      const Exact normalized = exact(*norm, plain);
      const ConstantWeights constant;
      for (int i = 0; i < 2; ++i) {  // the second time with what was kept
        EXPECT_LE(error(run(conv, input), plain), 1);
        EXPECT_LE(error(convolution_norm(conv, *norm, input), normalized), 1);
        EXPECT_LE(error(convolution_norm_relu(conv, norm.get(), input), normalized.relu()), 1);
        EXPECT_LE(error(convolution_norm_relu(conv, nullptr, input), plain.relu()), 1);
        EXPECT_LE(error(convolution_norm_relu(conv, norm.get(), input, residual), normalized.plus(residual).relu()), 1);
      }
      EXPECT_TRUE(convolution_of_constants(conv, norm.get(), input, {}, true).defined());
      const bool has_several = each.out > 1 && plain.values.size(2) > 1;
      EXPECT_EQ(convolution_of_constants(conv, norm.get(), input, residual, true).defined(), has_several);
    }
  }
}

// The layers round once more, between the convolution and the norm. Weights are kept at levels where oneDNN multiplies
// numbers of bfloat16.
TEST_F(ConstantWeightsTest, RoundedProductsAgreeWithTheLayers) {
  const Autocast autocast(at::kCPU, at::kBFloat16);
  const kernels::ScopedChoice choice(kernels::Kernel::rounded_products, false);
  const bool is_kept = processor_level() >= ProcessorLevel::avx512;
  for (const Case& each : kCases) {
    SCOPED_TRACE(std::to_string(each.in) + " to " + std::to_string(each.out) + ", kernel " +
                 std::to_string(each.kernel));
    Conv2d conv(each.in, each.out, each.kernel, each.options);
    const auto norm = norm_of(each.out);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor input = images({2, each.in, 13, 11}).to(type);
      const at::Tensor expected = run(*norm, run(conv, input));
      const at::Tensor residual = images(expected.sizes()).to(at::kBFloat16);
      const ConstantWeights constant;
      for (int i = 0; i < 2; ++i) {  // the second time with what was kept
        const at::Tensor sum = convolution_norm_relu(conv, norm.get(), input, residual);
        EXPECT_EQ(sum.scalar_type(), at::kBFloat16);
        EXPECT_LT(difference(sum.to(at::kFloat), (expected + residual).relu().to(at::kFloat)), 0.02);
        const at::Tensor output = convolution_norm(conv, *norm, input);
        EXPECT_LT(difference(output.to(at::kFloat), expected.to(at::kFloat)), 0.02);
      }
      EXPECT_EQ(convolution_of_constants(conv, norm.get(), input, {}, true).defined(), is_kept);
    }
  }
}

TEST_F(ConstantWeightsTest, LinearLayersOfRoundedProductsAgreeWithLibTorch) {
  const kernels::ScopedChoice choice(kernels::Kernel::rounded_products, false);
  const at::Tensor weight = torch::randn({40, 24}).requires_grad_();
  const at::Tensor input = torch::randn({3, 7, 24});
  const ConstantWeights constant;
  for (const at::Tensor& bias : {at::Tensor(), torch::randn({40}), torch::randn({40})}) {
    EXPECT_FALSE(linear_of_constants(input, weight, bias).defined()) << "float32";
    const Autocast autocast(at::kCPU, at::kBFloat16);
    const bool is_kept = processor_level() >= ProcessorLevel::avx512;
    EXPECT_EQ(linear_of_constants(input, weight, bias).defined(), is_kept);
    const at::Tensor expected = at::linear(input, weight, bias);
    for (const at::Tensor& given :
         {input, input.to(at::kBFloat16), input.transpose(0, 1).contiguous().transpose(0, 1)}) {
      const at::Tensor output = linear(given, weight, bias);
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      EXPECT_LT(difference(output.to(at::kFloat), expected.to(at::kFloat)), 0.01);
    }
    EXPECT_FALSE(linear_of_constants(input, weight * 2, bias).defined()) << "not a parameter";
    const torch::AutoGradMode grad(true);
    EXPECT_FALSE(linear_of_constants(input, weight, bias).defined());
  }
}

TEST_F(ConstantWeightsTest, MatricesOfConvolutionsHaveTheSameValuesInEveryLayout) {
  Conv2d conv(64, 96, 1, {.has_bias = true});
  const auto norm = norm_of(96);
  const at::Tensor input = images({2, 64, 13, 11});
  const Exact plain = exact(conv, input);
  const at::Tensor residual = images(plain.values.sizes());
  testing::in_both_forms(kernels::Kernel::packed_pixelwise, [&] {
    const ConstantWeights constant;
    EXPECT_LE(error(convolution_norm_relu(conv, norm.get(), input), exact(*norm, plain).relu()), 1);
    EXPECT_LE(
        error(convolution_norm_relu(conv, norm.get(), input, residual), exact(*norm, plain).plus(residual).relu()), 1);
  });
}

/// A linear layer in float64.
Exact exact(const Linear& layer, const at::Tensor& input) {
  const at::Tensor weight = in_double(layer.weight).t();
  const at::Tensor bias = layer.bias.defined() ? in_double(layer.bias) : at::zeros({1}, at::kDouble);
  return {in_double(input).matmul(weight) + bias, in_double(input).abs().matmul(weight.abs()) + bias.abs(),
          static_cast<double>(layer.weight.size(1) + 1)};
}

TEST_F(ConstantWeightsTest, LinearLayersAndWhatFollowsThemAgreeInOnePass) {
  for (const bool has_bias : {true, false}) {
    Linear layer(24, 40, has_bias);
    layer.eval();
    const at::Tensor input = torch::randn({2, 80, 24});
    const at::Tensor residual = torch::randn({2, 80, 40});
    const at::Tensor scale = torch::randn({40}, at::requires_grad());
    const Exact plain = exact(layer, input);
    const Exact scaled{plain.values * in_double(scale), plain.sizes * in_double(scale).abs(), plain.terms + 1};
    testing::in_both_forms(kernels::Kernel::linear_gelu, [&] {
      // The slope of GELU is at most 1.13, and its own rounding counts as one of a number of that size.
      const Exact wanted{at::gelu(plain.values), 1.13 * plain.sizes + plain.values.abs(), plain.terms};
      EXPECT_LE(error(linear_gelu(layer, input), wanted), 1);
    });
    testing::in_both_forms(kernels::Kernel::linear_sum, [&] {
      EXPECT_FALSE(linear_sum_of_constants(layer, input, residual, {}).defined()) << "weights may change";
      const ConstantWeights constant;
      const bool is_used = kernels::is_used(kernels::Kernel::linear_sum);
      for (int i = 0; i < 2 && is_used; ++i) {  // the second time with what was kept
        EXPECT_LE(error(linear_sum_of_constants(layer, input, residual, {}), plain.plus(residual)), 1);
        EXPECT_LE(error(linear_sum_of_constants(layer, input, residual, scale), scaled.plus(residual)), 1);
      }
      const auto is_in_one_pass = [&](const at::Tensor& values, const at::Tensor& other) {
        return linear_sum_of_constants(layer, values, other, {}).defined();
      };
      EXPECT_EQ(is_in_one_pass(input, residual), is_used);
      EXPECT_FALSE(is_in_one_pass(input.slice(1, 0, 3), residual.slice(1, 0, 3).contiguous())) << "few rows";
      EXPECT_FALSE(is_in_one_pass(input, residual.transpose(0, 1).contiguous().transpose(0, 1)));
      EXPECT_FALSE(is_in_one_pass(input.to(at::kDouble), residual));
      const ScopedTap tap([](Block&, const Tensors& inputs, const Forward& next) { return next(inputs); });
      EXPECT_FALSE(is_in_one_pass(input, residual));
      const torch::AutoGradMode grad(true);
      EXPECT_FALSE(is_in_one_pass(input, residual));
    });
  }
}

// The size for which weights were kept first, such as that of the last batch on one rank, has no effect on the bits.
TEST_F(ConstantWeightsTest, OtherSizesHaveTheSameBits) {
  const auto norm = norm_of(64);
  const std::vector<std::vector<std::int64_t>> sizes = {
      {4, 512, 12, 12}, {1, 512, 12, 12}, {2, 512, 30, 7}, {1, 512, 2, 2}};
  for (const std::int64_t kernel : {1, 3}) {
    Conv2d conv(512, 64, kernel, {.has_bias = false});
    for (const auto& size : sizes) {
      const at::Tensor input = images(size);
      const at::Tensor expected = run(*norm, run(conv, input)).relu();
      testing::in_both_forms(kernels::Kernel::packed_pixelwise, [&] {
        std::vector<at::Tensor> outputs;
        for (const auto& first : sizes) {
          const ConstantWeights constant;
          convolution_norm_relu(conv, norm.get(), images(first));
          outputs.push_back(convolution_norm_relu(conv, norm.get(), input));
          EXPECT_TRUE(at::equal(outputs.front(), outputs.back()));
        }
        EXPECT_LT(difference(outputs.front(), expected), 4e-6);
      });
    }
  }
}

TEST_F(ConstantWeightsTest, LaterValuesAreUsedAfterwards) {
  Conv2d conv(8, 16, 3, {.has_bias = false});
  const auto norm = norm_of(16);
  const at::Tensor input = images({1, 8, 6, 6});
  at::Tensor before;
  {
    const ConstantWeights constant;
    before = convolution_norm(conv, *norm, input);
  }
  conv.weight.mul_(2);
  const at::Tensor expected = run(*norm, run(conv, input));
  const ConstantWeights constant;
  EXPECT_LT(difference(convolution_norm(conv, *norm, input), expected), 2e-6);
  EXPECT_GT(difference(before, expected), 0.1);
}

TEST_F(ConstantWeightsTest, LayersRunOneByOneWhereTheyMust) {
  Conv2d conv(8, 16, 3, {.has_bias = false});
  const auto norm = norm_of(16);
  const at::Tensor input = images({1, 8, 6, 6});
  const auto is_in_one_pass = [&](const at::Tensor& given) {
    return convolution_of_constants(conv, norm.get(), given, {}, true).defined();
  };
  EXPECT_FALSE(is_in_one_pass(input));
  const ConstantWeights constant;
  EXPECT_TRUE(is_in_one_pass(input));
  EXPECT_FALSE(is_in_one_pass(input.contiguous(at::MemoryFormat::Contiguous)));
  EXPECT_FALSE(is_in_one_pass(input.to(at::kDouble)));
  {
    const ScopedTap tap([](Block&, const Tensors& inputs, const Forward& next) { return next(inputs); });
    EXPECT_FALSE(is_in_one_pass(input));
  }
  {
    const torch::AutoGradMode grad(true);
    EXPECT_FALSE(is_in_one_pass(input));
  }
  norm->train();
  EXPECT_FALSE(is_in_one_pass(input));
}

}  // namespace constant_weights_test
}  // namespace lockstep::models
