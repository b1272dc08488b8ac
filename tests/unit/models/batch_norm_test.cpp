// SPDX-License-Identifier: BSD-3-Clause
// Normalization, sum and ReLU in one go, beside LibTorch's functions one after the other.
#include <lockstep/models/layers.hpp>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <vector>

#include "models/families/rows.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace batch_norm_test {

struct Case {
  std::vector<std::int64_t> shape;
  bool has_residual = false;
  bool has_relu = false;
  at::ScalarType dtype = at::kFloat;
};

/// The values that a forward and its backward give.
struct Outcome {
  at::Tensor output, of_input, of_weight, of_bias, of_residual, running_mean, running_var;
};

class FusedBatchNormTest : public ::testing::Test {
 protected:
  FusedBatchNormTest() { torch::manual_seed(1); }

  static at::Tensor images(const Case& tested) {
    return (torch::randn(tested.shape) * 3 + 2).to(tested.dtype).contiguous(at::MemoryFormat::ChannelsLast);
  }

  /// @param compute  gives the output of layer, input and residual
  template <class Compute>
  static Outcome outcome_of(const Case& tested, const Compute& compute) {
    torch::manual_seed(2);
    BatchNorm layer(tested.shape[1]);
    {
      const torch::NoGradGuard no_grad;
      layer.weight.uniform_(-1, 2);
      layer.bias.normal_();
    }
    const at::Tensor input = images(tested).requires_grad_();
    const at::Tensor residual = tested.has_residual ? images(tested).requires_grad_() : at::Tensor();
    const at::Tensor output = compute(layer, input, residual);
    output.backward(images(tested));
    return {output.detach(),
            input.grad(),
            layer.weight.grad(),
            layer.bias.grad(),
            tested.has_residual ? residual.grad() : at::Tensor(),
            layer.running_mean,
            layer.running_var};
  }

  static Outcome fused(const Case& tested) {
    return outcome_of(tested, [&](BatchNorm& layer, const at::Tensor& input, const at::Tensor& residual) {
      return tested.has_relu ? layer.forward_relu(input, residual) : layer.forward(input);
    });
  }

  /// The sum in float64, rounded at the end.
  static Outcome expected(const Case& tested) {
    return outcome_of(tested, [&](BatchNorm& layer, const at::Tensor& input, const at::Tensor& residual) {
      at::Tensor mean = layer.running_mean.to(at::kDouble);
      at::Tensor var = layer.running_var.to(at::kDouble);
      at::Tensor output = at::batch_norm(input.to(at::kDouble), layer.weight.to(at::kDouble),
                                         layer.bias.to(at::kDouble), mean, var, true, 0.1, 1e-5, false);
      if (residual.defined()) output = output + residual.to(at::kDouble);
      if (tested.has_relu) output = output.relu();
      layer.running_mean.copy_(mean);
      layer.running_var.copy_(var);
      return output.to(tested.dtype);
    });
  }

  static void expect_close(const at::Tensor& got, const at::Tensor& wanted, double tolerance, const char* what) {
    ASSERT_EQ(got.defined(), wanted.defined()) << what;
    if (!got.defined()) return;
    EXPECT_EQ(got.scalar_type(), wanted.scalar_type()) << what;
    const double largest = wanted.to(at::kDouble).abs().max().item<double>();
    const double difference = (got.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>();
    EXPECT_LE(difference, tolerance * std::max(largest, 1e-3)) << what;
  }

  static void expect_close(const Outcome& got, const Outcome& wanted, double tolerance) {
    expect_close(got.output, wanted.output, tolerance, "output");
    expect_close(got.of_input, wanted.of_input, tolerance, "gradient of input");
    expect_close(got.of_weight, wanted.of_weight, tolerance, "gradient of weight");
    expect_close(got.of_bias, wanted.of_bias, tolerance, "gradient of bias");
    expect_close(got.of_residual, wanted.of_residual, tolerance, "gradient of residual");
    expect_close(got.running_mean, wanted.running_mean, tolerance, "running mean");
    expect_close(got.running_var, wanted.running_var, tolerance, "running variance");
  }
};

// Odd numbers of channels, more rows than a block holds, one image.
const std::vector<std::vector<std::int64_t>> kShapes = {{2, 3, 5, 7}, {4, 64, 16, 16}, {1, 17, 33, 3}, {3, 512, 2, 2}};

TEST_F(FusedBatchNormTest, AgreesWithLibTorchInDoublePrecision) {
  for (const auto& shape : kShapes) {
    for (const auto& [has_residual, has_relu] : {std::pair{false, false}, {false, true}, {true, true}}) {
      SCOPED_TRACE(std::to_string(shape[1]) + (has_residual ? " residual" : "") + (has_relu ? " relu" : ""));
      const Case tested{shape, has_residual, has_relu};
      const Outcome wanted = expected(tested);
      testing::in_both_forms(kernels::Kernel::batch_norm, [&] { expect_close(fused(tested), wanted, 2e-5); });
    }
  }
}

TEST_F(FusedBatchNormTest, AgreesInBfloat16) {
  for (const auto& shape : kShapes) {
    for (const bool has_relu : {false, true}) {
      const Case tested{shape, false, has_relu, at::kBFloat16};
      const Outcome wanted = expected(tested);
      testing::in_both_forms(kernels::Kernel::batch_norm, [&] { expect_close(fused(tested), wanted, 0.02); });
    }
  }
}

// LibTorch's functions round the norm before they add the residual. The ReLU then stops other gradients.
TEST_F(FusedBatchNormTest, ResidualsAreAddedBeforeRoundingToBfloat16) {
  const kernels::ScopedChoice choice(kernels::Kernel::batch_norm, true);
  for (const auto& shape : kShapes) {
    const Case tested{shape, true, true, at::kBFloat16};
    const Outcome wanted = expected(tested);
    testing::at_each_level([&] { expect_close(fused(tested), wanted, 0.02); });
  }
}

TEST_F(FusedBatchNormTest, OneGoAndSeveralHaveTheSameBits) {
  for (const bool has_residual : {false, true}) {
    const Case tested{{4, 64, 16, 16}, has_residual, true};
    const Outcome one = fused(tested);
    const Outcome several =
        outcome_of(tested, [](BatchNorm& layer, const at::Tensor& input, const at::Tensor& residual) {
          const at::Tensor output = layer.forward(input);
          return (residual.defined() ? output.add_(residual) : output).relu_();
        });
    EXPECT_TRUE(at::equal(one.output, several.output));
    EXPECT_TRUE(at::equal(one.of_input, several.of_input));
    EXPECT_TRUE(at::equal(one.of_weight, several.of_weight));
    EXPECT_TRUE(at::equal(one.running_var, several.running_var));
  }
}

TEST_F(FusedBatchNormTest, ThreadsDoNotChangeBits) {
  const Case tested{{8, 64, 32, 32}, true, true};
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = fused(tested);
  at::set_num_threads(2);
  const Outcome two = fused(tested);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.output, two.output));
  EXPECT_TRUE(at::equal(one.of_input, two.of_input));
  EXPECT_TRUE(at::equal(one.of_weight, two.of_weight));
}

// The gradient of the squared norm of a gradient.
TEST_F(FusedBatchNormTest, SecondDerivativesAreRecorded) {
  const auto second = [](bool is_fused) {
    torch::manual_seed(3);
    BatchNorm layer(4);
    const at::Tensor input = torch::randn({2, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    const at::Tensor residual = torch::randn({2, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    const at::Tensor output = is_fused ? layer.forward_relu(input, residual)
                                       : at::relu(at::batch_norm(input, layer.weight, layer.bias, layer.running_mean,
                                                                 layer.running_var, true, 0.1, 1e-5, false) +
                                                  residual);
    const at::Tensor first = torch::autograd::grad({output.pow(3).sum()}, {input}, {}, true, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {input})[0];
  };
  EXPECT_TRUE(at::allclose(second(true), second(false), 1e-4, 1e-5));
}

TEST_F(FusedBatchNormTest, NonFiniteValuesAreNotHidden) {
  BatchNorm layer(2);
  const at::Tensor input = torch::zeros({1, 2, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  input[0][1][0][0] = std::nan("");
  const at::Tensor output = layer.forward_relu(input);
  EXPECT_TRUE(output.select(1, 0).isfinite().all().item<bool>());
  EXPECT_TRUE(output.select(1, 1).isnan().all().item<bool>());
}

}  // namespace batch_norm_test
}  // namespace lockstep::models
