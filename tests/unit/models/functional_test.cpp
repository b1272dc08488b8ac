// SPDX-License-Identifier: BSD-3-Clause
// Fast ways of layers beside LibTorch's functions.
#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "models/layers/sequence.hpp"
#include "models/layers/taps.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace functional_test {

/// The largest difference, relative to the largest of the expected values.
double difference(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor wanted = expected.detach().to(at::kDouble);
  return ((got.detach().to(at::kDouble) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

/// The gradient of the input for a gradient that is not constant.
template <class Function>
at::Tensor input_gradient(const at::Tensor& values, const Function& function) {
  const at::Tensor input = values.detach().clone().requires_grad_();
  const at::Tensor output = function(input);
  output.backward(at::linspace(0.5, 1.5, output.numel()).view(output.sizes()).to(output.scalar_type()));
  return input.grad();
}

TEST(GeluTest, GradientAgreesWithLibTorch) {
  const at::Tensor values = at::cat({at::linspace(-20, 20, 100'001), at::linspace(-1, 1, 10'001)});
  const at::Tensor halves = values.to(at::kBFloat16);
  const auto library = [](const at::Tensor& input) { return at::gelu(input); };
  const at::Tensor expected = input_gradient(values.to(at::kDouble), library);
  const at::Tensor expected_of_halves = input_gradient(halves.to(at::kDouble), library);
  testing::in_both_forms(kernels::Kernel::gelu_gradient, [&] {
    const at::Tensor ours = input_gradient(values, [](const at::Tensor& input) { return models::gelu(input); });
    EXPECT_LT((ours.to(at::kDouble) - expected).abs().max().item<double>(), 5e-7);
    EXPECT_LT(difference(input_gradient(halves, [](const at::Tensor& input) { return models::gelu(input); }),
                         expected_of_halves),
              0.005);  // a unit in the last place of the largest
  });
}

TEST(GeluTest, OutputAgreesWithLibTorch) {
  const at::Tensor values = at::cat({at::linspace(-20, 20, 100'001), at::linspace(-1, 1, 10'001)});
  const at::Tensor expected = at::gelu(values.to(at::kDouble));
  const auto error_of = [&](const at::Tensor& got) {
    return ((got.to(at::kDouble) - expected).abs() / values.abs().clamp_min(1e-30)).max().item<double>();
  };
  // Both compute x Phi(x) with Phi = (1 + erf) / 2. The errors of the formulas for erf are 2e-8 (ours) and 1.5e-7
  // (Abramowitz and Stegun 7.1.26, which LibTorch's vectors use); each rounding of a number up to 1 adds 2^-24.
  constexpr double kRounding = 0x1p-24;
  testing::in_both_forms(kernels::Kernel::gelu, [&] {
    const bool is_ours = kernels::is_used(kernels::Kernel::gelu);
    const at::Tensor output = models::gelu(values);
    EXPECT_LT(error_of(output), is_ours ? 2e-8 / 2 + 5 * kRounding : 1.5e-7 / 2 + 8 * kRounding);
    for (const bool has_gradient_kernel : {true, false}) {
      const kernels::ScopedChoice choice(kernels::Kernel::gelu_gradient, has_gradient_kernel);
      EXPECT_TRUE(at::equal(models::gelu(values.clone().requires_grad_()), output));
    }
  });
}

TEST(GeluTest, NaNStays) {
  const at::Tensor values = at::tensor({1.0F, std::numeric_limits<float>::quiet_NaN(), -2.0F});
  const at::Tensor gradient = input_gradient(values, [](const at::Tensor& input) { return models::gelu(input); });
  EXPECT_TRUE(at::equal(gradient.isnan(), values.isnan()));
  EXPECT_TRUE(at::equal(models::gelu(values).isnan(), values.isnan()));
}

TEST(GeluTest, IsDifferentiableTwice) {
  std::vector<at::Tensor> results;
  for (const bool is_ours : {true, false}) {
    const at::Tensor input = at::linspace(-3, 3, 101, at::kFloat).requires_grad_();
    const at::Tensor output = is_ours ? models::gelu(input) : at::gelu(input);
    torch::autograd::grad({output.sum()}, {input}, {}, true, /*create_graph=*/true)[0].square().sum().backward();
    results.push_back(input.grad());
  }
  EXPECT_LT(difference(results[0], results[1]), 1e-6);
}

class LinearGeluTest : public ::testing::Test {
 protected:
  LinearGeluTest() {
    torch::manual_seed(1);
    layer_ = std::make_unique<Linear>(24, 40);
    const torch::NoGradGuard no_grad;
    layer_->weight.mul_(4);  // so that GELU is far from linear
  }

  /// The gradients of the input, the weight and the bias.
  /// @param is_ours         linear_gelu, or LibTorch in float64
  /// @param loss            of the output
  std::vector<at::Tensor> gradients(bool is_ours, const std::function<at::Tensor(const at::Tensor&)>& loss) const {
    const auto leaf = [&](const at::Tensor& value) {
      return (is_ours ? value.detach().clone() : value.detach().to(at::kDouble)).requires_grad_();
    };
    Linear copy(24, 40);
    copy.weight = leaf(layer_->weight);
    copy.bias = leaf(layer_->bias);
    const at::Tensor input = leaf(input_);
    const std::vector<at::Tensor> leaves = {input, copy.weight, copy.bias};
    const at::Tensor output = is_ours ? linear_gelu(copy, input) : at::gelu(at::linear(input, copy.weight, copy.bias));
    at::Tensor result = loss(output);
    if (has_penalty_) {
      const at::Tensor of_input = torch::autograd::grad({result}, {input}, {}, true, /*create_graph=*/true)[0];
      result = result + of_input.square().sum();
    }
    std::vector<at::Tensor> all = {output};
    for (const at::Tensor& each : torch::autograd::grad({result}, leaves)) all.push_back(each);
    return all;
  }

  void expect_agreement(double tolerance) {
    const auto loss = [](const at::Tensor& output) { return (output * output.sin()).sum(); };
    const std::vector<at::Tensor> expected = gradients(false, loss);
    testing::in_both_forms(kernels::Kernel::gelu_step, [&] {
      const std::vector<at::Tensor> ours = gradients(true, loss);
      for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_LT(difference(ours[i], expected[i]), tolerance) << i;
    });
  }

  std::unique_ptr<Linear> layer_;
  at::Tensor input_ = torch::randn({5, 31, 24});
  bool has_penalty_ = false;
};

TEST_F(LinearGeluTest, OutputAndGradientsAgreeWithLibTorch) { expect_agreement(2e-6); }

TEST_F(LinearGeluTest, IsDifferentiableTwice) {
  has_penalty_ = true;
  expect_agreement(5e-6);
}

// The derivative takes the place of the output of the layer only where nobody else has it.
TEST_F(LinearGeluTest, TapsSeeTheOutputOfTheLayer) {
  at::Tensor seen;
  const ScopedTap tap([&](Block&, const Tensors& inputs, const Forward& next) {
    Tensors outputs = next(inputs);
    seen = outputs.front();
    return outputs;
  });
  const at::Tensor output = linear_gelu(*layer_, input_.clone().requires_grad_());
  const ScopedTaps none({});
  EXPECT_TRUE(at::equal(output, linear_gelu(*layer_, input_.clone().requires_grad_()))) << "without taps";
  EXPECT_LT(difference(seen, at::linear(input_, layer_->weight, layer_->bias)), 1e-6);
}

class AutocastProductsTest : public ::testing::Test {
 protected:
  struct Outcome {
    at::Tensor output, of_input, of_weight;
  };

  /// @param compute  gives the output of input and weight, under autocast
  template <class Compute>
  static Outcome outcome_of(const at::Tensor& values, const at::Tensor& weights, const Compute& compute) {
    const at::Tensor input = values.detach().clone().requires_grad_();
    const at::Tensor weight = weights.detach().clone().requires_grad_();
    at::Tensor output;
    {
      const Autocast autocast(at::kCPU, at::kBFloat16);
      output = compute(input, weight);
    }
    torch::manual_seed(9);
    output.backward(torch::randn(output.sizes()).to(output.scalar_type()));
    return {output, input.grad(), weight.grad()};
  }

  static void expect_alike(const Outcome& got, const Outcome& expected) {
    EXPECT_EQ(got.output.scalar_type(), at::kBFloat16);
    EXPECT_LT(difference(got.output, expected.output), 0.01);
    EXPECT_LT(difference(got.of_input, expected.of_input), 0.02);
    EXPECT_EQ(got.of_weight.scalar_type(), expected.of_weight.scalar_type());
    EXPECT_LT(difference(got.of_weight, expected.of_weight), 0.02);
  }

  /// Parameters of float32, and of 16 bits.
  static constexpr std::array kTypes = {at::kFloat, at::kBFloat16};
};

TEST_F(AutocastProductsTest, LinearAgreesWithLibTorch) {
  torch::manual_seed(1);
  const at::Tensor input = torch::randn({3, 50, 24});
  for (const at::ScalarType type : kTypes) {
    const at::Tensor weight = torch::randn({40, 24}).to(type);
    const at::Tensor bias = torch::randn({40}).to(type);
    const Outcome expected =
        outcome_of(input, weight, [&](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w, bias); });
    testing::in_both_forms(kernels::Kernel::rounded_products, [&] {
      const auto linear = [&](const at::Tensor& x, const at::Tensor& w) { return models::linear(x, w, bias); };
      expect_alike(outcome_of(input, weight, linear), expected);
    });
  }
}

TEST_F(AutocastProductsTest, ConvolutionAgreesWithLibTorch) {
  torch::manual_seed(2);
  for (const auto& [type, format] :
       {std::pair{at::kFloat, at::MemoryFormat::ChannelsLast}, std::pair{at::kFloat, at::MemoryFormat::Contiguous},
        std::pair{at::kBFloat16, at::MemoryFormat::ChannelsLast}}) {
    const at::Tensor input = torch::randn({2, 16, 9, 9}).contiguous(format);
    const at::Tensor weight = torch::randn({8, 16, 3, 3}).to(type).contiguous(format);
    const at::Tensor bias = torch::randn({8}).to(type);
    const Outcome expected = outcome_of(
        input, weight, [&](const at::Tensor& x, const at::Tensor& w) { return at::conv2d(x, w, bias, 2, 1); });
    testing::in_both_forms(kernels::Kernel::rounded_products, [&] {
      const auto convolution = [&](const at::Tensor& x, const at::Tensor& w) {
        return models::convolution(x, w, bias, {.stride = 2, .padding = 1});
      };
      expect_alike(outcome_of(input, weight, convolution), expected);
    });
  }
}

TEST_F(AutocastProductsTest, AttentionAgreesWithLibTorch) {
  torch::manual_seed(3);
  const at::Tensor query = torch::randn({2, 3, 20, 16});
  const at::Tensor key = torch::randn({2, 3, 20, 16});
  const at::Tensor value = torch::randn({2, 3, 20, 16});
  const Outcome expected = outcome_of(query, key, [&](const at::Tensor& q, const at::Tensor& k) {
    return at::scaled_dot_product_attention(q, k, value, {}, 0, true);
  });
  testing::in_both_forms(kernels::Kernel::rounded_products, [&] {
    const auto attention = [&](const at::Tensor& q, const at::Tensor& k) {
      return models::attention(q, k, value, 0, true);
    };
    expect_alike(outcome_of(query, key, attention), expected);
  });
}

TEST_F(AutocastProductsTest, SelfAttentionAgreesWithLibTorch) {
  torch::manual_seed(5);
  const at::Tensor qkv = torch::randn({2, 21, 3, 3, 16});
  const at::Tensor unused = torch::zeros({1});
  const auto parts_of = [](const at::Tensor& x) { return x.permute({2, 0, 3, 1, 4}).unbind(0); };
  const Outcome expected = outcome_of(qkv, unused, [&](const at::Tensor& x, const at::Tensor& w) {
    const auto parts = parts_of(x.to(at::kBFloat16));
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(1, 2) + w.to(at::kBFloat16);
  });
  for (const at::ScalarType type : kTypes) {
    const kernels::ScopedChoice attention(kernels::Kernel::attention, true);
    testing::in_both_forms(kernels::Kernel::rounded_attention, [&] {
      const auto ours = [&](const at::Tensor& x, const at::Tensor& w) {
        return models::self_attention(x.to(type), x.size(1)) + w.to(at::kBFloat16);
      };
      expect_alike(outcome_of(qkv, unused, ours), expected);
    });
  }
}

TEST_F(AutocastProductsTest, DepthwiseConvolutionAgreesWithLibTorch) {
  torch::manual_seed(6);
  for (const at::ScalarType type : kTypes) {
    const at::Tensor input = torch::randn({2, 24, 9, 11}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor weight = torch::randn({24, 1, 5, 5}).to(type);
    const at::Tensor bias = torch::randn({24}).to(type);
    const Outcome expected = outcome_of(
        input, weight, [&](const at::Tensor& x, const at::Tensor& w) { return at::conv2d(x, w, bias, 1, 2, 1, 24); });
    const kernels::ScopedChoice depthwise(kernels::Kernel::depthwise, true);
    testing::in_both_forms(kernels::Kernel::rounded_depthwise, [&] {
      const auto convolution = [&](const at::Tensor& x, const at::Tensor& w) {
        return models::convolution(x, w, bias, {.padding = 2, .groups = 24});
      };
      expect_alike(outcome_of(input, weight, convolution), expected);
    });
  }
}

TEST(BatchNormByStatisticsTest, AgreesWithLibTorch) {
  torch::manual_seed(4);
  BatchNorm layer(17);
  const torch::NoGradGuard no_grad;
  layer.weight.uniform_(-1, 2);
  layer.bias.normal_();
  layer.running_mean.normal_();
  layer.running_var.uniform_(0.1, 3);
  layer.eval();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto images = [dtype] {
      return (torch::randn({2, 17, 5, 7}) * 3 + 1).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor input = images();
    const at::Tensor residual = images();
    const at::Tensor normalized =
        at::batch_norm(input.to(at::kDouble), layer.weight.to(at::kDouble), layer.bias.to(at::kDouble),
                       layer.running_mean.to(at::kDouble), layer.running_var.to(at::kDouble), false, 0, 1e-5, false);
    const double most = dtype == at::kFloat ? 1e-6 : 0.004;
    testing::in_both_forms(kernels::Kernel::batch_norm, [&] {
      EXPECT_LT(difference(layer.forward(input), normalized), most);
      EXPECT_LT(difference(layer.forward_relu(input), normalized.relu()), most);
      EXPECT_LT(difference(layer.forward_relu(input, residual), (normalized + residual).relu()), most);
      EXPECT_EQ(layer.forward(input).scalar_type(), dtype);
    });
  }
}

}  // namespace functional_test
}  // namespace lockstep::models
