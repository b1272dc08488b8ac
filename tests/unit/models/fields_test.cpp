// SPDX-License-Identifier: BSD-3-Clause
// Models of fields over 1 to 3 axes of space, and of columns.
#include <lockstep/core/error.hpp>
#include <lockstep/models/functional.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "models/layers/gradient_sink.hpp"
#include "models/layers/space_layers.hpp"
#include "models/layers/spectra.hpp"
#include "support/kernel_forms.hpp"

namespace lockstep::models {
namespace fields_test {

using Keys = std::map<std::string, std::string>;
using Sizes = std::vector<std::int64_t>;

/// A regression of `targets` channels.
Task fields(const Sizes& sample, std::size_t targets) {
  Task task{.sample_shape = sample, .kind = TaskKind::regression};
  task.fields.channels.resize(targets, "t");
  return task;
}

std::shared_ptr<Model> made(const Keys& keys, const Task& task, at::ScalarType dtype = at::kDouble) {
  Section model = Section::with_defaults("model", model_keys());
  for (const auto& [key, text] : keys) model.set(key, text, "test");
  return build(model, task, 1, dtype);
}

std::string reason(const Keys& keys, const Task& task) {
  try {
    made(keys, task);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// || a - b || / || b ||
double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

const Keys kSmallFno = {{"name", "fno"}, {"width", "4"}, {"depth", "2"}, {"modes", "4"}};

TEST(FieldModels, OutputsHaveTheChannelsOfTheTargets) {
  const std::vector<Keys> models = {
      kSmallFno, {{"name", "unet"}, {"width", "4"}, {"depth", "1"}}, {{"name", "unet_classic"}, {"width", "2"}}};
  for (const Keys& keys : models) {
    Sizes sample = {3};
    for (int axes = 1; axes <= 3; ++axes) {
      sample.push_back(16);
      Sizes input = sample;
      input.insert(input.begin(), 2);
      Sizes output = input;
      output[1] = 5;
      const auto model = made(keys, fields(sample, 5));
      EXPECT_EQ(run(*model, torch::randn(input, at::kDouble)).sizes(), output) << keys.at("name") << " " << axes;
    }
  }
}

// One value of each channel, the first axis of a target of columns.
TEST(FieldModels, AnMlpComputesColumns) {
  const auto model = made({{"name", "mlp"}, {"hidden", "4"}, {"standardize", "true"}}, fields({6}, 2));
  EXPECT_EQ(run(*model, torch::randn({3, 6}, at::kDouble)).sizes(), (Sizes{3, 2}));
  EXPECT_EQ(model->named_buffers()["target_mean"].sizes(), (Sizes{2}));
  EXPECT_EQ(reason({{"name", "mlp"}}, fields({6, 8}, 2)),
            "model.name: mlp computes one value of each channel, but the fields of the data have 1 axis of space; use "
            "unet or fno");
}

// Optimizers, communication, clipping and checkpoints see real parameters only.
TEST(FnoTest, ComplexWeightsAreParametersOfPairs) {
  const auto model = made(kSmallFno, fields({1, 8, 8}, 1), at::kFloat);
  for (const at::Tensor& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  EXPECT_EQ(model->named_parameters()["fno_blocks.convs.0.weight.tensor"].sizes(), (Sizes{4, 4, 4, 3, 2}));
  run(*model, torch::randn({2, 1, 8, 8})).square().mean().backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_GT(item.value().grad().norm().item<double>(), 0) << item.key();
  }
}

// A multiplication of frequencies commutes with shifts, and so does everything else without the grid.
TEST(FnoTest, ShiftsOfTheInputShiftTheOutput) {
  Keys keys = kSmallFno;
  keys["grid"] = "false";
  const auto model = made(keys, fields({2, 10, 9}, 1));
  const at::Tensor input = torch::randn({2, 2, 10, 9}, at::kDouble);
  const at::Tensor output = run(*model, input);
  EXPECT_LE(distance(run(*model, input.roll({3, 2}, {2, 3})), output.roll({3, 2}, {2, 3})), 1e-12);
  EXPECT_GE(distance(output.roll({3, 2}, {2, 3}), output), 1e-3);
}

// Products of frequencies are computed in float32.
TEST(FnoTest, AutocastLeavesTheTransformsAlone) {
  const auto model = made(kSmallFno, fields({1, 16}, 1), at::kFloat);
  const at::Tensor input = torch::randn({2, 1, 16});
  const at::Tensor exact = run(*model, input);
  const Autocast autocast(at::kCPU, at::kBFloat16);
  EXPECT_LE(distance(run(*model, input).to(at::kFloat), exact), 0.05);  // a few roundings to 8 bits
}

TEST(FnoTest, RefusalsSayWhatFits) {
  const Task field = fields({1, 8, 8}, 1);
  const auto with = [](const std::string& key, const std::string& value) {
    Keys keys = kSmallFno;
    keys[key] = value;
    return keys;
  };
  EXPECT_EQ(reason(with("modes", "4,4,4"), field),
            "model.modes (test): there are 3 values, but 2 axes of space; give one for all axes, or one for each");
  EXPECT_EQ(reason(with("domain_padding", "0.1,0.1,0.1"), field),
            "model.domain_padding (test): there are 3 values, but 2 axes of space; give one for all axes, or one for "
            "each");
  EXPECT_EQ(reason(with("norm", "batch"), field), "model.norm (test): fno has none, one_group or instance");
  Keys both = with("preactivation", "true");
  both["norm"] = "instance";
  EXPECT_EQ(reason(both, field),
            "model.preactivation (test): it cannot be combined with model.norm=instance; reset one of them");
  EXPECT_EQ(reason(kSmallFno, fields({7}, 1)),
            "model.name: fno needs samples [channels, space...] with 1 to 3 axes of space, but they have 0 of them; "
            "use mlp for columns");
  EXPECT_EQ(reason(kSmallFno, {.sample_shape = {1, 8, 8}, .classes = 3}),
            "model.name: fno needs a target for each pixel: masks of classes (data.target=mask) or fields of real "
            "numbers");
}

/// The place of each kept frequency of an axis among `points`, in ascending order.
at::Tensor places(std::int64_t points, std::int64_t count, std::int64_t shift) {
  return at::arange(count, at::kLong).sub(count / 2 + shift).remainder(points);
}

/// The same numbers by LibTorch's transforms, which compute all frequencies.
at::Tensor plain_frequencies(const at::Tensor& field, const Sizes& counts) {
  if (field.dim() == 3) return at::fft_rfftn(field, std::nullopt, Sizes{2}, "forward").narrow(2, 0, counts[0]);
  const at::Tensor all = at::fft_rfftn(field, std::nullopt, Sizes{2, 3}, "forward").narrow(3, 0, counts[1]);
  return all.index_select(2, places(field.size(2), counts[0], 0));
}

at::Tensor plain_field(const at::Tensor& frequencies, const Sizes& sizes, FrequencyOrder order) {
  if (frequencies.dim() == 3) return at::fft_irfftn(frequencies, sizes, Sizes{2}, "forward");
  const std::int64_t shift = order == FrequencyOrder::shifted ? sizes[0] % 2 : 0;
  Sizes shape = frequencies.sizes().vec();
  shape[2] = sizes[0];
  const at::Tensor all =
      at::zeros(shape, frequencies.options()).index_add(2, places(sizes[0], frequencies.size(2), shift), frequencies);
  return at::fft_irfftn(all, sizes, Sizes{2, 3}, "forward");
}

TEST(SpectraTest, ValuesAndGradientsAreThoseOfWholeTransforms) {
  at::manual_seed(1);
  struct Case {
    Sizes sizes, counts;
  };
  for (const Case& each : {Case{{8}, {3}}, Case{{8}, {5}}, Case{{9}, {5}}, Case{{6, 8}, {4, 5}}, Case{{7, 9}, {4, 3}},
                           Case{{7, 8}, {7, 2}}}) {
    Sizes shape = {2, 3};
    shape.insert(shape.end(), each.sizes.begin(), each.sizes.end());
    const at::Tensor values = torch::randn(shape, at::kDouble), weights = torch::randn(shape, at::kDouble);
    for (const FrequencyOrder order : {FrequencyOrder::standard, FrequencyOrder::shifted}) {
      std::vector<std::vector<at::Tensor>> results;
      for (const bool is_ours : {true, false}) {
        const at::Tensor field = values.clone().requires_grad_();
        const at::Tensor frequencies =
            is_ours ? lowest_frequencies(field, each.counts) : plain_frequencies(field, each.counts);
        const at::Tensor changed = frequencies * frequencies;
        const at::Tensor output =
            is_ours ? field_of_frequencies(changed, each.sizes, order) : plain_field(changed, each.sizes, order);
        const at::Tensor gradient =
            torch::autograd::grad({(weights * output).sum()}, {field}, {}, true, /*create_graph=*/true)[0];
        gradient.square().sum().backward();
        results.push_back({at::view_as_real(frequencies.detach()), output.detach(), gradient.detach(), field.grad()});
      }
      for (std::size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_LT(distance(results[0][i], results[1][i]), 1e-12) << i << " " << shape;
      }
    }
  }
}

struct SpectralCase {
  Sizes sizes, counts;
};

/// Output, gradients of the input and of the weight, and those of the squared gradient of the input.
std::vector<at::Tensor> spectral_results(const SpectralCase& each, FrequencyOrder order, at::ScalarType type) {
  at::manual_seed(1);
  Sizes field_shape = {3, 4}, weight_shape = {4, 5};
  field_shape.insert(field_shape.end(), each.sizes.begin(), each.sizes.end());
  weight_shape.insert(weight_shape.end(), each.counts.begin(), each.counts.end());
  weight_shape.push_back(2);
  const auto leaf = [type](const Sizes& shape) { return torch::randn(shape, at::kFloat).to(type).requires_grad_(); };
  const at::Tensor field = leaf(field_shape), weight = leaf(weight_shape);
  const at::Tensor output = spectral_convolution(field, weight, order);
  const at::Tensor loss = (output * output.sin()).sum();
  std::vector<at::Tensor> results = {output.detach()};
  const auto add = [&](const std::vector<at::Tensor>& gradients) {
    for (const at::Tensor& gradient : gradients) results.push_back(gradient.detach());
  };
  add(torch::autograd::grad({loss}, {field, weight}, {}, /*retain_graph=*/true));
  const at::Tensor of_field = torch::autograd::grad({loss}, {field}, {}, true, /*create_graph=*/true)[0];
  add(torch::autograd::grad({of_field.square().sum()}, {field, weight}));
  return results;
}

// The convolution in float64 is made of transforms that are tested above.
TEST(SpectraTest, ConvolutionsAndTheirGradientsAgreeWithFloat64) {
  for (const SpectralCase& each :
       {SpectralCase{{8}, {1}}, SpectralCase{{9}, {5}}, SpectralCase{{40}, {21}}, SpectralCase{{6, 8}, {4, 5}},
        SpectralCase{{7, 9}, {4, 3}}, SpectralCase{{3, 4, 6}, {2, 4, 3}}}) {
    for (const FrequencyOrder order : {FrequencyOrder::standard, FrequencyOrder::shifted}) {
      const std::vector<at::Tensor> expected = spectral_results(each, order, at::kDouble);
      testing::in_both_forms(kernels::Kernel::frequency_products, [&] {
        const std::vector<at::Tensor> results = spectral_results(each, order, at::kFloat);
        for (std::size_t i = 0; i < results.size(); ++i) {
          EXPECT_LT(distance(results[i], expected[i]), 3e-6) << i << " " << each.sizes;
        }
      });
    }
  }
}

// Twice the same step: the gradient is written where the reducer wants it, then added.
TEST(SpectraTest, GradientOfTheWeightIsWrittenIntoItsSink) {
  const kernels::ScopedChoice kernel(kernels::Kernel::frequency_products, true);
  const at::Tensor field = torch::randn({3, 4, 16});
  at::Tensor weight = torch::randn({4, 5, 7, 2}).requires_grad_();
  const auto backward = [&] {
    spectral_convolution(field, weight, FrequencyOrder::standard).square().sum().backward();
  };
  backward();
  const at::Tensor expected = weight.grad().clone();
  weight.mutable_grad().reset();
  const at::Tensor memory = torch::full(weight.sizes(), 1e30);
  attach_sink(weight, memory);
  backward();
  EXPECT_TRUE(weight.grad().is_same(memory));
  EXPECT_TRUE(at::equal(memory, expected));
  backward();
  EXPECT_TRUE(at::equal(memory, 2 * expected));
  EXPECT_TRUE(sink_of(weight)->is_written);
  detach_sink(weight);
}

// Exact small numbers on one axis of three points.
TEST(SpaceLayersTest, BordersFollowTheirAxis) {
  const at::Tensor line = torch::tensor({1., 2., 3.}).view({1, 1, 3});
  const auto expect = [&](AxisPadding padding, const std::vector<double>& values) {
    const at::Tensor expected = torch::tensor(values, at::kFloat);
    EXPECT_TRUE(at::equal(padded(line, {padding}).view(-1), expected)) << static_cast<int>(padding);
  };
  expect(AxisPadding::zero, {0, 1, 2, 3, 0});
  expect(AxisPadding::circular, {3, 1, 2, 3, 1});
  expect(AxisPadding::replicate, {1, 1, 2, 3, 3});
  expect(AxisPadding::reflect, {2, 1, 2, 3, 2});
  const at::Tensor plane = padded(line.view({1, 1, 1, 3}), {AxisPadding::zero, AxisPadding::circular});
  EXPECT_TRUE(at::equal(plane[0][0][0], torch::zeros({5})));
  EXPECT_TRUE(at::equal(plane[0][0][1], torch::tensor({3., 1., 2., 3., 1.})));
}

/// A field with borders, and the gradient of the field from a gradient of it. A recorded gradient is computed by the
/// plain form.
struct Bordered {
  at::Tensor output;
  at::Tensor gradient;
};

Bordered bordered(const at::Tensor& values, const std::vector<AxisPadding>& paddings, const at::Tensor& gradient,
                  bool is_recorded) {
  const at::Tensor field = values.detach().requires_grad_();
  const at::Tensor output = padded(field, paddings);
  const at::Tensor of_output = gradient.detach().requires_grad_(is_recorded);
  return {output.detach(),
          torch::autograd::grad({output}, {field}, {of_output}, /*retain_graph=*/false, is_recorded)[0].detach()};
}

TEST(SpaceLayersTest, BordersHaveTheSameBitsByTheKernelAndThePlainForm) {
  const std::vector<AxisPadding> kinds = {AxisPadding::zero, AxisPadding::circular, AxisPadding::replicate,
                                          AxisPadding::reflect};
  for (const Sizes& shape : {Sizes{2, 3, 5}, {1, 1, 2, 9}, {2, 8, 4, 3}, {3, 2, 2, 4, 3}}) {
    for (std::size_t k = 0; k < kinds.size() * kinds.size(); ++k) {
      const bool is_last = shape.size() == 4 && k % 3 != 0;
      const auto ordered = [&](const at::Tensor& field) {
        return is_last ? field.contiguous(at::MemoryFormat::ChannelsLast) : field;
      };
      std::vector<AxisPadding> paddings = {kinds[k % 4], kinds[k / 4], kinds[(k + 1) % 4]};
      paddings.resize(shape.size() - 2);
      const at::Tensor field = ordered(torch::randn(shape));
      const at::Tensor gradient = ordered(torch::randn_like(padded(field, paddings)));
      const Bordered kernel = bordered(field, paddings, gradient, /*is_recorded=*/false);
      const Bordered plain = bordered(field, paddings, gradient, /*is_recorded=*/true);
      EXPECT_TRUE(at::equal(kernel.gradient, plain.gradient)) << shape << ": " << k;
      EXPECT_TRUE(at::equal(kernel.output.to(at::kDouble), padded(field.to(at::kDouble), paddings)))
          << shape << ": " << k;
      EXPECT_EQ(kernel.gradient.strides(), field.strides());
    }
  }
}

TEST(SpaceLayersTest, RefusalsSayWhatFits) {
  const Keys unet = {{"name", "unet"}, {"width", "4"}, {"depth", "2"}, {"padding", "zero,circular"}};
  EXPECT_EQ(reason(unet, fields({1, 8}, 1)),
            "model.padding (test): there are 2 paddings, but 1 axis of space; give one for all axes, or one for each");
  const Keys unknown = {{"name", "unet"}, {"padding", "circula"}};
  EXPECT_EQ(
      reason(unknown, fields({1, 16}, 1)),
      "model.padding (test): 'circula' is unknown; choose one of: zero, circular, replicate, reflect; did you mean "
      "'circular'?");
  EXPECT_EQ(reason({{"name", "unet"}, {"depth", "2"}}, fields({1, 3, 8, 8}, 1)),
            "model.depth (test): 2 levels need fields of at least 4 points on an axis, but they have 3 x 8 x 8");
  EXPECT_EQ(reason({{"name", "unet"}, {"depth", "2"}, {"padding", "reflect"}}, fields({1, 4, 8}, 1)),
            "model.depth (test): 2 levels need fields of at least 8 points on an axis, but they have 4 x 8");
  EXPECT_EQ(reason({{"name", "unet_classic"}}, fields({1, 32, 24}, 1)),
            "model.name: unet_classic needs axes of multiples of 16 points, but they have 32 x 24; crop the fields or "
            "use unet");
  EXPECT_EQ(reason({{"name", "unet_classic"}, {"padding", "reflect"}}, fields({1, 16}, 1)),
            "model.padding (test): reflect needs at least 32 points on its axis, but the sizes are 16");
}

}  // namespace fields_test
}  // namespace lockstep::models
