// SPDX-License-Identifier: BSD-3-Clause
// Products of small integers are exact in float32, whatever the order of the sums: all ways must have the same bits.
#include <lockstep/models/functional.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "models/layers/channels_last.hpp"
#include "models/layers/gradient_sink.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace convolution_test {

at::Tensor integers(at::IntArrayRef sizes) {
  return torch::randint(-4, 5, sizes, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
}

struct Case {
  std::int64_t channels;
  std::int64_t outputs;
  std::int64_t kernel;
  Convolution geometry = {};
  std::int64_t height = 9;
  std::int64_t width = 7;
};

/// The last three suit neither the patch product nor the depthwise one.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {8, 4, 3, {.padding = 1}},
      {16, 12, 3, {.stride = 2, .padding = 1}},
      {24, 8, 1},
      {40, 4, 1, {.stride = 2}},
      {8, 4, 2, {.stride = 2}},
      {8, 20, 7, {.stride = 2, .padding = 3}},
      {64, 64, 3, {.padding = 1}, 21, 23},  // several blocks of pixels and of columns
      {32, 16, 3, {.padding = 2}, 16, 15},
      {16, 48, 3, {}, 18, 19},
      {8, 8, 2, {.stride = 2, .is_transposed = true}},
      {16, 8, 3, {.stride = 1, .is_transposed = true}},
      {8, 8, 3, {.padding = 1, .groups = 8}},
      {16, 16, 7, {.padding = 3, .groups = 16}, 12, 11},
      {40, 40, 5, {.stride = 2, .padding = 2, .groups = 40}},
      {24, 24, 7, {.padding = 3, .groups = 24}, 3, 2},  // the kernel is larger than the image
      {16, 16, 3, {.stride = 2, .groups = 16}},
      {4, 4, 3, {.padding = 1, .groups = 4}},
      {3, 5, 3, {.padding = 1}},
      {4, 8, 1, {.stride = 2}, 8, 8},
  };
  return all;
}

at::Tensor weight_of(const Case& tested) {
  const std::int64_t kernel = tested.kernel;
  return tested.geometry.is_transposed
             ? integers({tested.channels, tested.outputs / tested.geometry.groups, kernel, kernel})
             : integers({tested.outputs, tested.channels / tested.geometry.groups, kernel, kernel});
}

at::Tensor by_library(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      const Convolution& geometry) {
  if (geometry.is_transposed)
    return at::conv_transpose2d(input, weight, bias, geometry.stride, geometry.padding, 0, geometry.groups);
  return at::conv2d(input, weight, bias, geometry.stride, geometry.padding, 1, geometry.groups);
}

std::string text_of(const Case& tested) {
  return std::to_string(tested.channels) + " to " + std::to_string(tested.outputs) + " channels, kernel " +
         std::to_string(tested.kernel) + ", stride " + std::to_string(tested.geometry.stride) +
         (tested.geometry.is_transposed ? ", transposed" : "");
}

// The gradients of the weights.
TEST(ConvolutionTest, ThreadsDivideTheWork) {
  const kernels::ScopedChoice patches(kernels::Kernel::patch_product, true);
  const kernels::ScopedChoice depthwise(kernels::Kernel::depthwise_3x3, true);
  torch::manual_seed(2);
  const auto random = [](at::IntArrayRef sizes) {
    return torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor images = random({2, 64, 17, 19});
  const int before = at::get_num_threads();
  for (const std::int64_t groups : {1, 64}) {
    const Convolution geometry{.padding = 1, .groups = groups};
    const at::Tensor weight = random({64, 64 / groups, 3, 3}).requires_grad_();
    std::vector<at::Tensor> results;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      const at::Tensor input = images.clone().requires_grad_();
      const at::Tensor output = models::convolution(input, weight, {}, geometry);
      const auto gradients = torch::autograd::grad({output.square().sum()}, {input, weight});
      results.push_back(at::cat({output.flatten(), gradients[0].flatten(), gradients[1].flatten()}));
    }
    EXPECT_TRUE(at::equal(results[0], results[1])) << groups;
  }
  at::set_num_threads(before);
}

struct Outcome {
  at::Tensor output, of_input, of_weight, of_bias;
};

template <class Function>
Outcome outcome_of(const Case& tested, std::vector<at::Tensor> leaves, const at::Tensor& gradient,
                   const Function& function) {
  for (at::Tensor& leaf : leaves) leaf = leaf.detach().clone().requires_grad_();
  const at::Tensor output = function(leaves[0], leaves[1], leaves[2], tested.geometry);
  output.backward(gradient.to(output.scalar_type()));
  return {output.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

void expect_equal(const Outcome& got, const Outcome& wanted) {
  EXPECT_TRUE(at::equal(got.output.to(at::kDouble), wanted.output));
  EXPECT_TRUE(at::equal(got.of_input.to(at::kDouble), wanted.of_input));
  EXPECT_TRUE(at::equal(got.of_weight.to(at::kDouble), wanted.of_weight));
  EXPECT_TRUE(at::equal(got.of_bias.to(at::kDouble), wanted.of_bias));
}

TEST(ConvolutionTest, AgreesWithLibTorch) {
  torch::manual_seed(3);
  for (const Case& each : cases()) {
    SCOPED_TRACE(text_of(each));
    const at::Tensor bias = torch::randint(-4, 5, {each.outputs}, at::kFloat);
    const std::vector<at::Tensor> leaves = {integers({2, each.channels, each.height, each.width}), weight_of(each),
                                            bias};
    const at::Tensor gradient = integers(by_library(leaves[0], leaves[1], bias, each.geometry).sizes());
    std::vector<at::Tensor> doubles;
    for (const at::Tensor& tensor : leaves) doubles.push_back(tensor.to(at::kDouble));
    const Outcome expected = outcome_of(each, doubles, gradient, by_library);
    for (const auto kernel : {kernels::Kernel::depthwise, kernels::Kernel::depthwise_3x3,
                              kernels::Kernel::patch_product, kernels::Kernel::winograd}) {
      testing::in_both_forms(kernel, [&] {
        const Outcome got = outcome_of(each, leaves, gradient, models::convolution);
        expect_equal(got, expected);
        EXPECT_TRUE(got.output.is_contiguous(at::MemoryFormat::ChannelsLast));
        const torch::NoGradGuard no_grad;
        const at::Tensor alone = models::convolution(leaves[0], leaves[1], bias, each.geometry);
        EXPECT_TRUE(at::equal(alone.to(at::kDouble), expected.output));
      });
    }
  }
}

TEST(ConvolutionTest, WritesIntoTheSinkAndAddsToIt) {
  const kernels::ScopedChoice choice(kernels::Kernel::patch_product, true);
  torch::manual_seed(4);
  const at::Tensor input = integers({2, 8, 5, 5});
  const at::Tensor weight = integers({4, 8, 3, 3}).requires_grad_();
  const at::Tensor plain = weight.detach().clone().requires_grad_();
  const at::Tensor memory = at::full_like(weight, 1e30);
  attach_sink(weight, memory);
  for (int i = 0; i < 2; ++i) {
    models::convolution(input, weight, {}, {.padding = 1}).sum().backward();
    by_library(input, plain, {}, {.padding = 1}).sum().backward();
    EXPECT_TRUE(weight.grad().is_same(memory) || weight.grad().const_data_ptr() == memory.const_data_ptr());
    EXPECT_TRUE(at::equal(memory, plain.grad()));
  }
  detach_sink(weight);
}

// The expected value is the definition in double, of the pixels that the convolution reads.
TEST(ConvolutionTest, PixelwiseIsDifferentiableTwice) {
  torch::manual_seed(6);
  for (const at::MemoryFormat format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      SCOPED_TRACE("stride " + std::to_string(stride));
      const at::Tensor first = integers({2, 3, 5, 8}).contiguous(format);
      const at::Tensor kernel = integers({4, 3, 1, 1});
      const at::Tensor shift = torch::randint(-4, 5, {4}, at::kFloat);
      std::vector<std::vector<at::Tensor>> results;
      for (const bool is_ours : {true, false}) {
        const auto leaf = [&](const at::Tensor& values) {
          return values.to(is_ours ? at::kFloat : at::kDouble).clone().requires_grad_();
        };
        const std::vector<at::Tensor> leaves = {leaf(first), leaf(kernel), leaf(shift)};
        const at::Tensor output =
            is_ours ? models::convolution(leaves[0], leaves[1], leaves[2], {.stride = stride})
                    : at::einsum("nchw,oc->nohw",
                                 {leaves[0].slice(2, 0, std::nullopt, stride).slice(3, 0, std::nullopt, stride),
                                  leaves[1].flatten(1)}) +
                          leaves[2].view({1, 4, 1, 1});
        const auto gradients = torch::autograd::grad({output.square().sum()}, leaves, {}, true, /*create_graph=*/true);
        at::Tensor penalty = gradients[0].square().sum();
        for (const std::size_t i : {1, 2}) penalty = penalty + gradients[i].square().sum();
        std::vector<at::Tensor>& result = results.emplace_back(gradients);
        for (const at::Tensor& gradient : torch::autograd::grad({penalty}, leaves)) result.push_back(gradient);
      }
      for (std::size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_GT(results[1][i].abs().max().item<double>(), 0) << i;
        EXPECT_TRUE(at::allclose(results[0][i].to(at::kDouble), results[1][i], 1e-5)) << i;
      }
    }
  }
}

TEST(ConvolutionTest, IsDifferentiableTwice) {
  torch::manual_seed(5);
  const at::Tensor first = integers({1, 8, 4, 4});
  const at::Tensor kernel = integers({4, 8, 3, 3});
  std::vector<at::Tensor> results;
  for (const bool is_ours : {true, false}) {
    const at::Tensor input = first.clone().requires_grad_();
    const at::Tensor weight = kernel.clone().requires_grad_();
    const Convolution geometry{.padding = 1};
    const at::Tensor output =
        is_ours ? models::convolution(input, weight, {}, geometry) : by_library(input, weight, {}, geometry);
    const auto gradients = torch::autograd::grad({output.square().sum()}, {input}, {}, true, /*create_graph=*/true);
    gradients[0].square().sum().backward();
    results.push_back(weight.grad());
  }
  EXPECT_GT(results[1].abs().max().item<double>(), 0);
  EXPECT_TRUE(at::allclose(results[0], results[1], 1e-5));
}

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

TEST(ChannelsLastTest, OnlyOtherOrdersAreCopied) {
  for (const std::int64_t channels : {1, 3}) {
    const at::Tensor planes = torch::rand({2, channels, 4, 5});
    const at::Tensor last = planes.clone(kLast);
    EXPECT_TRUE(channels_last(last).is_same(last));
    const at::Tensor copy = channels_last(planes);
    EXPECT_FALSE(copy.is_same(planes)) << channels;
    EXPECT_EQ(copy.strides(), last.strides());
    EXPECT_TRUE(copy.equal(planes));
    const at::Tensor part = last.narrow(0, 1, 1);
    EXPECT_TRUE(channels_last(part).is_same(part)) << "a part of a batch has the order of the batch";
  }
}

TEST(ChannelsLastTest, TheOrderOfTheInputDoesNotChangeTheOutput) {
  const std::map<std::string, std::map<std::string, std::string>> families = {
      {"resnet18", {{"width", "8"}}},
      {"convnext", {{"depths", "1,1"}, {"widths", "8,16"}}},
      {"unet", {{"width", "8"}, {"depth", "2"}}}};
  for (const auto& [name, keys] : families) {
    for (const std::int64_t channels : {1, 3}) {
      Task task{.sample_shape = {channels, 32, 32}, .classes = 4};
      if (name == "unet") task.kind = TaskKind::segmentation;
      Section section = Section::with_defaults("model", model_keys());
      section.set("name", name, "test");
      for (const auto& [key, text] : keys) section.set(key, text, "test");
      const auto model = build(section, task, 1, at::kFloat);
      EXPECT_TRUE(model->family().prefers_channels_last) << name;
      torch::manual_seed(1);
      const at::Tensor planes = torch::rand({2, channels, 32, 32});
      EXPECT_TRUE(model->forward(planes.clone(kLast)).equal(model->forward(planes))) << name << channels;
    }
  }
}

}  // namespace convolution_test
}  // namespace lockstep::models
