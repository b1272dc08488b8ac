// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/field_normalization.hpp"

#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

namespace lockstep::models {
namespace field_normalization_test {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

at::Tensor fields(std::initializer_list<double> numbers, at::IntArrayRef shape) {
  return torch::tensor(std::vector<double>(numbers), at::kDouble).view(shape);
}

TEST(FieldNormalizationTest, InputsAreNormalizedByChannel) {
  const FieldNormalization made({.input_shift = {10, 0}, .input_scale = {2, 4}}, at::kDouble);
  const at::Tensor input = fields({10, 12, 14, 4, 8, -4}, {1, 2, 3});
  EXPECT_TRUE(made.normalized(input).equal(fields({0, 1, 2, 1, 2, -1}, {1, 2, 3})));
}

// The form that a gradient needs computes the same bits as the kernel, also of gaps and numbers that are not finite.
TEST(FieldNormalizationTest, TheKernelHasTheBitsOfTheOperations) {
  at::manual_seed(1);
  at::Tensor input = 280 + 20 * torch::randn({2, 3, 5, 13});
  input.flatten()[7] = std::numeric_limits<float>::quiet_NaN();
  input.flatten()[101] = std::numeric_limits<float>::infinity();
  for (const bool fills_gaps : {false, true}) {
    const FieldNormalization made(
        {.input_shift = {280, 0.1, -3}, .input_scale = {20, 0.3, 7}, .fills_gaps = fills_gaps}, at::kFloat);
    const at::Tensor plain = made.normalized(input.clone().requires_grad_()).detach();
    const at::Tensor fast = made.normalized(input);
    EXPECT_TRUE(fast.view(at::kInt).equal(plain.view(at::kInt))) << fills_gaps;
    EXPECT_EQ(fast.isnan().sum().item<std::int64_t>(), fills_gaps ? 0 : 1);
    EXPECT_TRUE(made.normalized(input.transpose(2, 3)).equal(fast.transpose(2, 3)) || !fills_gaps);
  }
}

TEST(FieldNormalizationTest, GapsBecomeTheMeanAfterNormalization) {
  const FieldNormalization made({.input_shift = {10}, .input_scale = {2}, .fills_gaps = true}, at::kDouble);
  EXPECT_TRUE(made.normalized(fields({kGap, 14}, {1, 1, 2})).equal(fields({0, 2}, {1, 1, 2})));
}

TEST(FieldNormalizationTest, RatesComeFirst) {
  const FieldNormalization made({.input_rates = {2, 0}, .input_shift = {0, 1}, .input_scale = {1, 0}}, at::kDouble);
  const at::Tensor x = made.normalized(fields({0.5, 1}, {1, 2}));
  EXPECT_NEAR(x[0][0].item<double>(), 1 - std::exp(-1), 1e-15);
  EXPECT_EQ(x[0][1].item<double>(), 0);  // 0 / 0
}

TEST(FieldNormalizationTest, OutputsGetTheirUnitsBack) {
  const FieldNormalization made({.target_shift = {10, 0}, .target_scale = {2, 4}}, at::kDouble);
  const at::Tensor output = fields({0, 1, 1, -1}, {1, 2, 2});
  EXPECT_TRUE(made.in_units(output, at::Tensor()).equal(fields({10, 12, 4, -4}, {1, 2, 2})));
  // 16 bits of autocast do not round the result.
  const FieldNormalization narrow({.target_shift = {280}, .target_scale = {1}}, at::kBFloat16);
  const at::Tensor value = narrow.in_units(fields({0.5}, {1, 1, 1}).to(at::kBFloat16), at::Tensor());
  EXPECT_EQ(value.scalar_type(), at::kFloat);
  EXPECT_EQ(value.item<double>(), 280.5);
}

// One channel, two steps in (3 is the older one), two steps out.
TEST(FieldNormalizationTest, DifferencesAreAddedToTheNewestInput) {
  FieldScaling scaling{.target_shift = {1, 1},
                       .target_scale = {2, 2},
                       .input_steps = 2,
                       .input_channels = 1,
                       .target_steps = 2,
                       .fed_back = {0},
                       .adds_newest = true};
  const at::Tensor input = fields({3, 100}, {1, 2, 1});
  const at::Tensor output = fields({0, 2}, {1, 2, 1});  // differences 1 and 5
  EXPECT_TRUE(FieldNormalization(scaling, at::kDouble).in_units(output, input).equal(fields({101, 105}, {1, 2, 1})));
  scaling.adds_steps = true;
  const FieldNormalization steps(scaling, at::kDouble);
  EXPECT_TRUE(steps.in_units(output, input).equal(fields({101, 106}, {1, 2, 1})));
  // Losses compare the differences of steps.
  EXPECT_TRUE(steps.scaled(fields({101, 106}, {1, 2, 1}), input).equal(fields({0.5, 2.5}, {1, 2, 1})));
}

TEST(FieldNormalizationTest, DifferencesToAGapAreGaps) {
  const FieldNormalization made({.fills_gaps = true, .input_channels = 1, .fed_back = {0}, .adds_newest = true},
                                at::kDouble);
  const at::Tensor values = made.in_units(fields({1, 1}, {1, 1, 2}), fields({kGap, 4}, {1, 1, 2}));
  EXPECT_TRUE(std::isnan(values[0][0][0].item<double>()));
  EXPECT_EQ(values[0][0][1].item<double>(), 5);
}

// Two steps in of a predicted and a forced channel, one step out: the numbers say where they come from.
TEST(FieldNormalizationTest, PredictionsBecomeInputs) {
  const FieldNormalization made({.input_steps = 2, .input_channels = 2, .fed_back = {1}}, at::kDouble);
  const at::Tensor first = fields({10, 11, 20, 21, 7}, {1, 5, 1});  // a static field at the end
  const at::Tensor second = fields({20, 21, 30, 31, 7}, {1, 5, 1});
  const at::Tensor third = fields({30, 31, 40, 41, 7}, {1, 5, 1});
  const std::vector<at::Tensor> outputs = {fields({131}, {1, 1, 1}), fields({141}, {1, 1, 1})};
  const at::Tensor next = made.next_input(second, first, {outputs[0]});
  EXPECT_TRUE(next.equal(fields({20, 21, 30, 131, 7}, {1, 5, 1})));
  EXPECT_TRUE(made.next_input(third, next, outputs).equal(fields({30, 131, 40, 141, 7}, {1, 5, 1})));
}

TEST(FieldNormalizationTest, GapsStayGapsInRollouts) {
  const FieldNormalization made({.fills_gaps = true, .input_channels = 1, .fed_back = {0}}, at::kDouble);
  const at::Tensor next =
      made.next_input(fields({5, 6}, {1, 1, 2}), fields({kGap, 2}, {1, 1, 2}), {fields({8, 9}, {1, 1, 2})});
  EXPECT_TRUE(std::isnan(next[0][0][0].item<double>()));
  EXPECT_EQ(next[0][0][1].item<double>(), 9);
}

Section model_section() {
  Section model = Section::with_defaults("model", model_keys());
  model.set("name", "mlp", "test");
  model.set("hidden", "3", "test");
  return model;
}

// The network sees normalized rows, and the loss compares values in units of the scales of the targets.
TEST(FieldNormalizationTest, ModelsRunAroundIt) {
  Task task{.sample_shape = {2}, .classes = 2, .kind = TaskKind::regression};
  task.fields.channels = {"u", "v"};
  const auto plain = build(model_section(), task, 3, at::kDouble);
  task.fields.scaling = {
      .input_shift = {1, 2}, .input_scale = {10, 0.1}, .target_shift = {5, -5}, .target_scale = {100, 0.01}};
  const auto model = build(model_section(), task, 3, at::kDouble);
  const at::Tensor input = fields({1, 2, 11, 1.9}, {2, 2});
  const at::Tensor target = fields({100, -5, 205, -5.01}, {2, 2});
  const batch::Batch batch(input, target);
  const at::Tensor inner = run(*plain, batch::Batch(fields({0, 0, 1, -1}, {2, 2}))).main();
  const at::Tensor scale = fields({100, 0.01}, {1, 2});
  const at::Tensor expected = inner * scale + fields({5, -5}, {1, 2});
  const batch::Outputs outputs = run(*model, batch);
  EXPECT_TRUE(outputs.main().allclose(expected, 1e-12, 1e-12));
  const double loss = total_loss(losses_of(*model, outputs, batch)).item<double>();
  EXPECT_NEAR(loss, ((expected - target) / scale).square().mean().item<double>(), 1e-12 * loss);
  const auto buffers = model->named_buffers();
  EXPECT_TRUE(buffers.contains("normalization.input_shift"));
  EXPECT_TRUE(buffers["normalization.target_scale"].equal(fields({100, 0.01}, {2})));
}

/// A factor for each input channel, summed over them: [N, 2, X] -> [N, 1, X].
class Sum : public Model {
 public:
  Sum() : factors_(register_parameter("factors", fields({0.5, -0.25}, {1, 2, 1}))) {}
  at::Tensor forward(const at::Tensor& input) override { return (input * factors_).sum(1, /*keepdim=*/true).tanh(); }
  at::Tensor factors_;
};

// Two passes over a predicted and a forced channel against a plain loop, with both kinds of gradient.
TEST(FieldNormalizationTest, RolloutsAreALoop) {
  const FieldScaling scaling{.input_shift = {1, 2},
                             .input_scale = {2, 4},
                             .target_shift = {0.5},
                             .target_scale = {3},
                             .input_channels = 2,
                             .fed_back = {0},
                             .adds_newest = true};
  const at::Tensor first = fields({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  const at::Tensor second = fields({7, 8, 9, 10, 11, 12}, {1, 2, 3});
  for (const bool is_last_only : {false, true}) {
    Sum model;
    model.set_normalization(scaling, at::kDouble);
    batch::Batch batch(first, at::Tensor());
    batch.set(is_last_only ? kSkippedInputs : kLaterInputs, second.unsqueeze(1));
    const at::Tensor output = run(model, batch).main();
    output.square().sum().backward();

    Sum plain;
    const auto pass = [&](const at::Tensor& predicted, const at::Tensor& forced) {
      const at::Tensor input = at::cat({(predicted - 1) / 2, (forced - 2) / 4}, 1);
      return plain.forward(input) * 3 + 0.5 + predicted;
    };
    at::Tensor one = pass(first.narrow(1, 0, 1), first.narrow(1, 1, 1));
    const at::Tensor two = pass(is_last_only ? one.detach() : one, second.narrow(1, 1, 1));
    const at::Tensor expected = is_last_only ? two : at::cat({one, two}, 1);
    expected.square().sum().backward();
    EXPECT_TRUE(output.allclose(expected, 1e-14, 1e-14));
    EXPECT_TRUE(model.factors_.grad().allclose(plain.factors_.grad(), 1e-13, 1e-13));
  }
}

}  // namespace field_normalization_test
}  // namespace lockstep::models
