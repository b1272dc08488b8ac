// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "make_optimizer.hpp"
#include "support/leaf_parameters.hpp"

namespace lockstep::optim {
namespace optim_wrapper_test {

/// One parameter of two elements.
class LeafParameters : public testing::LeafParameters {
 public:
  explicit LeafParameters(DType dtype = DType::float64) : testing::LeafParameters(dtype, {{"w", {2}}}) {}

  /// A loss whose gradient is (x, y).
  Tensor loss(double x, double y) const {
    return (leaf(0) * torch::tensor({x, y}, leaf(0).options().requires_grad(false))).sum();
  }
  double value(std::size_t i) { return values<double>("w")[i]; }
  bool has_gradient() const { return leaf(0).grad().defined(); }
};

OptimWrapper wrap(LeafParameters& parameters, const OptimWrapper::WrapperOptions& options) {
  return {make_optimizer({{"lr", "0.5"}}, parameters), parameters, options};
}

TEST(OptimWrapperTest, AStepUpdatesAndDropsTheGradients) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {});
  EXPECT_TRUE(wrapper.completes_step());
  const UpdateReport report = wrapper.update_params(parameters.loss(2, 4));
  EXPECT_TRUE(report.updated);
  EXPECT_TRUE(report.is_finite);
  EXPECT_FALSE(report.grad_norm);
  EXPECT_EQ(parameters.value(0), -1);
  EXPECT_EQ(parameters.value(1), -2);
  EXPECT_FALSE(parameters.has_gradient());
  EXPECT_EQ(parameters.writes, 1);
}

TEST(OptimWrapperTest, MicroBatchesAddUpToTheirMean) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.accumulation_steps = 2});
  for (int step = 1; step <= 2; ++step) {
    EXPECT_FALSE(wrapper.completes_step());
    EXPECT_FALSE(wrapper.update_params(parameters.loss(2, 0)).updated);
    EXPECT_EQ(parameters.writes, step - 1);
    EXPECT_TRUE(parameters.has_gradient());
    EXPECT_TRUE(wrapper.completes_step());
    EXPECT_TRUE(wrapper.update_params(parameters.loss(4, 2)).updated);
    EXPECT_EQ(parameters.value(0), -1.5 * step);
    EXPECT_EQ(parameters.value(1), -0.5 * step);
    EXPECT_FALSE(parameters.has_gradient());
  }
}

TEST(OptimWrapperTest, UnequalMicroBatchesHaveTheirOwnWeights) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.accumulation_steps = 2});
  wrapper.update_params(parameters.loss(4, 0), 0.75);
  wrapper.update_params(parameters.loss(0, 4), 0.25);
  EXPECT_EQ(parameters.value(0), -1.5);
  EXPECT_EQ(parameters.value(1), -0.5);
}

TEST(OptimWrapperTest, ResetForgetsAStepThatWasBegun) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.accumulation_steps = 2});
  wrapper.update_params(parameters.loss(2, 0));
  EXPECT_TRUE(wrapper.completes_step());
  wrapper.reset();
  EXPECT_FALSE(wrapper.completes_step());
}

TEST(OptimWrapperTest, ClipsByTheNormOfTheWholeStep) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.accumulation_steps = 2, .clip = {.max_norm = 1}});
  EXPECT_FALSE(wrapper.update_params(parameters.loss(6, 0)).grad_norm);
  const UpdateReport report = wrapper.update_params(parameters.loss(0, 8));
  EXPECT_EQ(report.grad_norm, 5);
  const double factor = 1 / (5 + 1e-6);
  EXPECT_EQ(parameters.value(0), -0.5 * (3 * factor));
  EXPECT_EQ(parameters.value(1), -0.5 * (4 * factor));
}

TEST(OptimWrapperTest, ClipsByValueWithoutANorm) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.clip = {.max_value = 1}});
  EXPECT_FALSE(wrapper.update_params(parameters.loss(0.5, -8)).grad_norm);
  EXPECT_EQ(parameters.value(0), -0.25);
  EXPECT_EQ(parameters.value(1), 0.5);
}

TEST(OptimWrapperTest, ANormThatIsNotFiniteUpdatesNothing) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.clip = {.max_norm = 1}});
  const UpdateReport report = wrapper.update_params(parameters.loss(1, std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(report.is_finite);
  EXPECT_FALSE(report.updated);
  EXPECT_EQ(parameters.writes, 0);
  EXPECT_EQ(wrapper.optimizer().steps(0)[0], 0);
  EXPECT_FALSE(parameters.has_gradient());
  EXPECT_TRUE(wrapper.update_params(parameters.loss(1, 1)).updated);  // and the next step is as usual
  EXPECT_EQ(wrapper.optimizer().steps(0)[0], 1);
}

TEST(OptimWrapperTest, WeightOneLeavesTheGradientAlone) {
  LeafParameters parameters(DType::float32);
  OptimWrapper wrapper = wrap(parameters, {.accumulation_steps = 2});
  const Tensor loss = parameters.loss(1.0 / 3, 1e-44);
  wrapper.update_params(loss, 1.0);
  const auto* gradient = reinterpret_cast<const float*>(parameters.gradient(0, 0));
  EXPECT_EQ(gradient[0], static_cast<float>(1.0 / 3));
  EXPECT_EQ(gradient[1], static_cast<float>(1e-44));
}

TEST(OptimWrapperTest, TheLastStepTakesWhatIsLeft) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.accumulation_steps = 4});
  wrapper.begin_at(0, 6);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(wrapper.update_params(parameters.loss(2, 0)).updated, i == 3);
  EXPECT_EQ(parameters.value(0), -1);
  EXPECT_EQ(wrapper.micro_batches_in_step(), 2);
  EXPECT_FALSE(wrapper.update_params(parameters.loss(2, 0)).updated);
  EXPECT_TRUE(wrapper.completes_step());
  EXPECT_TRUE(wrapper.update_params(parameters.loss(6, 0)).updated);
  EXPECT_EQ(parameters.value(0), -3);  // their mean, 4, and not an eighth of 8
  wrapper.reset();
  EXPECT_EQ(wrapper.micro_batches_done(), 6);
}

// The second group alone is clipped: 5 to 2.5. The norm that is told is that of the whole, sqrt(9 + 16 + 1).
TEST(OptimWrapperTest, EveryGroupMayBeClippedByItself) {
  testing::LeafParameters parameters(DType::float64, {{"bias", {1}}, {"w", {1, 2}}});
  Optimizer optimizer =
      make_optimizer({{"lr", "1"}, {"weight_decay", "0.5"}, {"no_decay", "norms_biases"}}, parameters);
  OptimWrapper wrapper(std::move(optimizer), parameters, {.clip = {.max_norm = 2.5, .is_by_group = true}});
  const UpdateReport report =
      wrapper.update_params((parameters.leaf(1) * torch::tensor({3.0, 4.0})).sum() + parameters.leaf(0).sum());
  EXPECT_DOUBLE_EQ(report.grad_norm.value(), std::sqrt(26));
  EXPECT_EQ(parameters.values<double>("bias")[0], -1);
  EXPECT_NEAR(parameters.values<double>("w")[0], -1.5, 1e-6);
  EXPECT_NEAR(parameters.values<double>("w")[1], -2, 1e-6);
  EXPECT_FALSE(wrapper.update_params(parameters.leaf(1).sum() * std::nan("")).updated);
}

// Powers of two go in and out of a float exactly.
TEST(LossScaleTest, ChangesNoBitOfAStep) {
  for (const Clip& clip : {Clip{}, Clip{.max_norm = 0.5}, Clip{.max_norm = 0.5, .norm_type = 3}, Clip{.max_value = 0.4},
                           Clip{.max_norm = 0.5, .norm_type = std::numeric_limits<double>::infinity()}}) {
    LeafParameters plain(DType::float32);
    LeafParameters scaled(DType::float32);
    OptimWrapper one = wrap(plain, {.accumulation_steps = 2, .clip = clip});
    OptimWrapper other = wrap(scaled, {.accumulation_steps = 2, .clip = clip, .scaler = GradScalerOptions{}});
    for (int i = 0; i < 4; ++i) {
      const UpdateReport expected = one.update_params(plain.loss(0.3 + i, -0.7));
      const UpdateReport report = other.update_params(scaled.loss(0.3 + i, -0.7));
      EXPECT_EQ(report.updated, expected.updated);
      EXPECT_EQ(report.grad_norm, expected.grad_norm);
    }
    for (std::size_t k : {0, 1}) EXPECT_EQ(scaled.values<float>("w")[k], plain.values<float>("w")[k]);
  }
}

TEST(LossScaleTest, WhatVanishesInFloat16IsKept) {
  testing::LeafParameters parameters(DType::float32, {{"w", {1}}});
  // Beside 1e-6, float16 has steps of 6e-8; beside 1e-3, of 1e-6.
  OptimWrapper wrapper(make_optimizer({{"lr", "1"}}, parameters), parameters,
                       {.scaler = GradScalerOptions{.init_scale = 1024}});
  const Tensor half = parameters.leaf(0).to(at::kHalf);
  wrapper.update_params((half * 1e-6).to(at::kFloat).sum());
  EXPECT_NEAR(parameters.values<float>("w")[0], -1e-6, 1e-9);
}

TEST(LossScaleTest, AFaultyStepChangesNothingButTheScale) {
  for (const double fault : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const Clip& clip : {Clip{}, Clip{.max_norm = 1}}) {
      LeafParameters parameters;
      OptimWrapper wrapper(make_optimizer({{"name", "adamw"}}, parameters), parameters,
                           {.clip = clip, .scaler = GradScalerOptions{}});
      wrapper.update_params(parameters.loss(1, 1));
      const double before = parameters.value(0);
      const UpdateReport report = wrapper.update_params(parameters.loss(1, fault));
      EXPECT_FALSE(report.updated);
      EXPECT_FALSE(report.is_finite);
      EXPECT_EQ(parameters.value(0), before);
      EXPECT_EQ(wrapper.optimizer().steps(0)[0], 1);
      EXPECT_EQ(wrapper.scaler()->scale(), 32768);
      EXPECT_EQ(wrapper.scaler()->state().skipped_steps, 1);
      EXPECT_FALSE(parameters.has_gradient());
    }
  }
}

// A gradient that another rank owns is not finite: this one must not update either.
TEST(LossScaleTest, AllWhoOwnPartsAgree) {
  LeafParameters parameters;
  OptimWrapper wrapper = wrap(parameters, {.scaler = GradScalerOptions{}});
  parameters.of_others = {1};
  EXPECT_FALSE(wrapper.update_params(parameters.loss(1, 1)).updated);
  EXPECT_EQ(parameters.writes, 0);
  parameters.of_others = {0};
  EXPECT_TRUE(wrapper.update_params(parameters.loss(1, 1)).updated);
}

TEST(OptimWrapperDictTest, DoesWhatConcernsAll) {
  LeafParameters a;
  LeafParameters b;
  OptimWrapperDict all;
  all.add("b", wrap(b, {.accumulation_steps = 3}));
  all.add("a", wrap(a, {}));
  EXPECT_EQ(all.values("lr"), (std::map<std::string, std::vector<double>>{{"a.lr", {0.5}}, {"b.lr", {0.5}}}));
  all.begin_at(0, 4);  // the last step of b has one micro_batch
  for (int i = 0; i < 4; ++i) EXPECT_EQ(all.at("b").update_params(b.loss(3, 0)).updated, i >= 2) << i;
  EXPECT_EQ(b.value(0), -3);
  a.loss(1, 1).backward();
  all.drop_gradients();
  EXPECT_FALSE(a.has_gradient());
  EXPECT_THROW(all.add("a", wrap(a, {})), ConfigError);
}

TEST(OptimWrapperTest, RefusesFewerThanOneMicroBatch) {
  LeafParameters parameters;
  EXPECT_THROW(wrap(parameters, {.accumulation_steps = 0}), ConfigError);
}

}  // namespace optim_wrapper_test
}  // namespace lockstep::optim
