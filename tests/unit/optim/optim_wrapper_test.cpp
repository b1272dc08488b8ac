// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace {

/// One parameter of two elements, the leaf of a graph: its gradients are those that backward accumulates.
class LeafParameters : public testing::FlatParametersDouble {
 public:
  explicit LeafParameters(DType dtype = DType::float64) : FlatParametersDouble(dtype, {{"w", {2}}}) {
    const auto type = dtype == DType::float64 ? torch::kFloat64 : torch::kFloat32;
    leaf_ = torch::from_blob(blocks()[0].parameters, {2}, type).requires_grad_();
  }

  const std::byte* gradient(std::size_t, std::size_t) const override {
    return leaf_.grad().defined() ? static_cast<const std::byte*>(leaf_.grad().const_data_ptr()) : nullptr;
  }
  void drop_gradients() override { leaf_.mutable_grad().reset(); }

  /// A loss whose gradient is (x, y).
  Tensor loss(double x, double y) const {
    return (leaf_ * torch::tensor({x, y}, leaf_.options().requires_grad(false))).sum();
  }
  double value(std::size_t i) { return values<double>("w")[i]; }
  bool has_gradient() const { return leaf_.grad().defined(); }

 private:
  Tensor leaf_;
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

TEST(OptimWrapperTest, RefusesFewerThanOneMicroBatch) {
  LeafParameters parameters;
  EXPECT_THROW(wrap(parameters, {.accumulation_steps = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::optim
