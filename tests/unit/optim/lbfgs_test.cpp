// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "make_optimizer.hpp"
#include "support/device_parameters_double.hpp"
#include "support/leaf_parameters.hpp"

namespace lockstep::optim {
namespace lbfgs_test {

using testing::FlatParametersDouble;
using Values = std::vector<double>;

OptionValues lbfgs(const OptionValues& more) {
  OptionValues settings = {{"name", "lbfgs"}, {"lr", "1"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

/// 0.5 * (a - 3)^2 + 4.5 * (b + 1)^2, of two parameters: least at a = 3, b = -1.
class Bowl {
 public:
  explicit Bowl(const OptionValues& settings, const Values& position = {0, 0})
      : parameters_(DType::float64, {{"a", {1}}, {"b", {}}}), optimizer_(make_optimizer(lbfgs(settings), parameters_)) {
    move_to(position);
  }

  ClosureResult step() {
    return optimizer_.step_with_closure([this] {
      ++calls;
      const double a = at()[0] - 3;
      const double b = at()[1] + 1;
      parameters_.set_gradient<double>("a", {a});
      parameters_.set_gradient<double>("b", {9 * b});
      first_loss = calls == 1 ? (a * a + 9 * b * b) / 2 : first_loss;
      return (a * a + 9 * b * b) / 2;
    });
  }
  void move_to(const Values& position) {
    parameters_.set_values<double>("a", {position[0]});
    parameters_.set_values<double>("b", {position[1]});
  }
  Values at() { return {parameters_.values<double>("a")[0], parameters_.values<double>("b")[0]}; }
  FlatParametersDouble& parameters() { return parameters_; }
  Optimizer& optimizer() { return optimizer_; }

  int calls = 0;
  double first_loss = 0;

 private:
  FlatParametersDouble parameters_;
  Optimizer optimizer_;
};

TEST(LbfgsTest, FindsTheLeast) {
  for (const char* search : {"none", "strong_wolfe"}) {
    Bowl bowl(OptionValues{{"line_search_fn", search}});
    const ClosureResult result = bowl.step();
    EXPECT_EQ(bowl.first_loss, 9);
    EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(9.0 + 81));
    EXPECT_EQ(result.evaluations, bowl.calls);
    EXPECT_EQ(bowl.optimizer().numbers().at("func_evals"), bowl.calls);
    EXPECT_NEAR(bowl.at()[0], 3, 1e-6) << search;
    EXPECT_NEAR(bowl.at()[1], -1, 1e-6) << search;
    EXPECT_EQ(bowl.optimizer().steps(0)[0], 1);
    EXPECT_FALSE(bowl.parameters().has_gradient(0, 0));
  }
}

// The first step goes down the gradient [-3, 9], by min(1, 1 / 12) * lr.
TEST(LbfgsTest, TheFirstStepHasBoundedLength) {
  Bowl bowl(OptionValues{{"lr", "0.5"}, {"max_iter", "1"}});
  EXPECT_EQ(bowl.step().evaluations, 1);
  EXPECT_DOUBLE_EQ(bowl.at()[0], 3.0 / 24);
  EXPECT_DOUBLE_EQ(bowl.at()[1], -9.0 / 24);
}

TEST(LbfgsTest, StaysWhereTheGradientIsZero) {
  Bowl bowl(OptionValues{}, {3, -1});
  EXPECT_EQ(bowl.step().evaluations, 1);
  EXPECT_EQ(bowl.at(), (Values{3, -1}));
}

TEST(LbfgsTest, EvaluatesNoMoreThanItMay) {
  for (const int max : {1, 2, 3}) {
    Bowl bowl(OptionValues{{"lr", "0.1"}, {"max_eval", std::to_string(max)}});
    bowl.step();
    EXPECT_EQ(bowl.calls, std::max(max, 2)) << max;  // the first step is always looked at
  }
}

// Two optimizers of one function: what one remembers, put into the other, makes it continue bit for bit. The history is
// shorter than the steps, so that it goes round.
TEST(LbfgsTest, ContinuesFromWhatItRemembers) {
  const OptionValues settings = {{"max_iter", "3"}, {"history_size", "2"}, {"lr", "0.3"}};
  const auto steps = [](Bowl& bowl, int count) {
    for (int i = 0; i < count; ++i) bowl.step();
  };
  Bowl straight(settings);
  steps(straight, 3);
  Bowl stopped(settings);
  steps(stopped, 2);
  EXPECT_EQ(stopped.optimizer().state_of(0, 0, 2).value().shape, (Shape{2, 1}));
  EXPECT_EQ(stopped.optimizer().state_of(0, 1, 2).value().shape, (Shape{2}));
  for (const bool is_restored : {false, true}) {
    Bowl resumed(settings, stopped.at());
    for (std::size_t slot = 0; is_restored && slot < 4; ++slot) {
      const auto from = stopped.optimizer().state(0, slot);
      std::copy(from.begin(), from.end(), resumed.optimizer().state(0, slot).begin());
    }
    if (is_restored) resumed.optimizer().numbers() = stopped.optimizer().numbers();
    steps(resumed, 1);
    EXPECT_EQ(resumed.at() == straight.at(), is_restored);
  }
}

/// Counts how often its ranks meet to sum.
class CountingDouble : public FlatParametersDouble {
 public:
  using FlatParametersDouble::FlatParametersDouble;
  void sum_over_owners(std::span<double>) const override { ++sums; }
  mutable int sums = 0;
};

// One for the norm of the first gradient, one for the history that the step begins with, and two for each iteration,
// whatever the length of the history.
TEST(LbfgsTest, RanksMeetTwiceInAnIteration) {
  for (const char* const history : {"1", "2", "100"}) {
    CountingDouble parameters(DType::float64, {{"x", {3}}});
    Optimizer optimizer =
        make_optimizer(lbfgs({{"max_iter", "4"}, {"history_size", history}, {"lr", "0.1"}}), parameters);
    const auto evaluate = [&parameters] {
      const auto x = parameters.values<double>("x");
      std::vector<double> gradient(3);
      double loss = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        const double off = x[i] - static_cast<double>(i + 1);
        gradient[i] = static_cast<double>(i + 1) * off;
        loss += gradient[i] * off / 2;
      }
      parameters.set_gradient<double>("x", gradient);
      return loss;
    };
    EXPECT_EQ(optimizer.step_with_closure(evaluate).evaluations, 4);
    EXPECT_EQ(parameters.sums, 1 + 2 * 4) << history;
    parameters.sums = 0;
    optimizer.step_with_closure(evaluate);
    EXPECT_EQ(parameters.sums, 1 + 1 + 2 * 4) << history;
  }
}

/// Smooth, not convex, of two parameters with 5003 elements in all, several pieces: sum of c * (1 - cos(v - t)) + v^4.
/// @return  the loss at its current values, with gradients set
double evaluate_waves(FlatParametersDouble& parameters) {
  double loss = 0;
  int position = 0;
  for (const char* const name : {"w", "b"}) {
    const auto values = parameters.values<double>(name);
    std::vector<double> gradient(values.size());
    for (std::size_t i = 0; i < values.size(); ++i, ++position) {
      const double c = 1 + 0.5 * std::sin(0.7 * position);
      const double off = values[i] - std::cos(0.3 * position);
      loss += c * (1 - std::cos(off)) + std::pow(values[i], 4) / 40;
      gradient[i] = c * std::sin(off) + std::pow(values[i], 3) / 10;
    }
    parameters.set_gradient<double>(name, gradient);
  }
  return loss;
}

// The tensors come to where the loops come, with as many evaluations, on a GPU.
TEST(LbfgsTest, TensorsDoWhatTheLoopsDo) {
  const std::vector<FlatParametersDouble::Parameter> shapes = {{"w", {100, 50}}, {"b", {3}}, {"unused", {2}}};
  for (const OptionValues& more :
       {OptionValues{{"line_search_fn", "strong_wolfe"}, {"max_iter", "4"}, {"history_size", "3"}},
        OptionValues{{"lr", "0.5"}, {"max_iter", "5"}}}) {
    FlatParametersDouble looped(DType::float64, shapes);
    testing::DeviceParametersDouble tensors(DType::float64, shapes);
    Optimizer by_loops = make_optimizer(lbfgs(more), looped);
    Optimizer by_tensors = make_optimizer(lbfgs(more), tensors);
    const double first = evaluate_waves(looped);
    for (int step = 0; step < 6; ++step) {
      const ClosureResult expected = by_loops.step_with_closure([&] { return evaluate_waves(looped); });
      const ClosureResult actual = by_tensors.step_with_closure([&] { return evaluate_waves(tensors); });
      EXPECT_EQ(actual.evaluations, expected.evaluations) << step;
      EXPECT_NEAR(actual.grad_norm, expected.grad_norm, 1e-12 * expected.grad_norm) << step;
      for (std::size_t i = 0; i < 5000; ++i) {
        const double value = looped.values<double>("w")[i];
        EXPECT_NEAR(tensors.values<double>("w")[i], value, 1e-12 * std::max(1.0, std::abs(value))) << step << " " << i;
      }
    }
    EXPECT_LT(evaluate_waves(tensors), 0.5 * first);
    EXPECT_EQ(by_tensors.numbers().at("learnt"), by_loops.numbers().at("learnt"));
    EXPECT_EQ(tensors.values<double>("unused")[0], 0);
  }
}

/// Another rank owns "y", as long as "x", with the same values and gradients.
class DividedParameters : public testing::DeviceParametersDouble {
 public:
  using DeviceParametersDouble::DeviceParametersDouble;
  bool is_divided() const noexcept override { return true; }
  void sum_over_ranks(const at::Tensor& values) override { values.mul_(2); }
};

// (x - 4)^2 / 2 twice: the first step goes down the gradient -4 by min(1, 1 / 8).
TEST(LbfgsTest, TensorsOfOtherRanksCount) {
  DividedParameters parameters(DType::float64, {{"x", {1}}});
  Optimizer optimizer = make_optimizer(lbfgs({{"max_iter", "1"}}), parameters);
  const ClosureResult result = optimizer.step_with_closure([&parameters] {
    parameters.set_gradient<double>("x", {parameters.values<double>("x")[0] - 4});
    return std::pow(parameters.values<double>("x")[0] - 4, 2);
  });
  EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(32));
  EXPECT_DOUBLE_EQ(parameters.values<double>("x")[0], 0.5);
}

// f(x) = x where x >= 0.5, else not a number: the search stays where there are numbers.
TEST(LbfgsTest, ALossThatIsNoNumberIsTooHigh) {
  FlatParametersDouble parameters(DType::float64, {{"x", {1}}});
  parameters.set_values<double>("x", {1});
  Optimizer optimizer = make_optimizer(lbfgs({{"line_search_fn", "strong_wolfe"}}), parameters);
  optimizer.step_with_closure([&parameters] {
    parameters.set_gradient<double>("x", {1});
    const double x = parameters.values<double>("x")[0];
    return x >= 0.5 ? x : std::numeric_limits<double>::quiet_NaN();
  });
  EXPECT_LT(parameters.values<double>("x")[0], 1);
  EXPECT_GE(parameters.values<double>("x")[0], 0.5);
}

TEST(LbfgsTest, AGradientThatIsNotFiniteMovesNothing) {
  FlatParametersDouble parameters(DType::float32, {{"x", {1}}});
  Optimizer optimizer = make_optimizer(lbfgs({}), parameters);
  const ClosureResult result = optimizer.step_with_closure([&parameters] {
    parameters.set_gradient<float>("x", {std::numeric_limits<float>::infinity()});
    return 1.0;
  });
  EXPECT_FALSE(std::isfinite(result.grad_norm));
  EXPECT_EQ(result.evaluations, 1);
  EXPECT_EQ(parameters.values<float>("x")[0], 0);
}

// A parameter without gradient stays, though it counts as one.
TEST(LbfgsTest, WithoutAGradientAParameterStays) {
  FlatParametersDouble parameters(DType::float64, {{"x", {2}}, {"unused", {3}}});
  parameters.set_values<double>("unused", {1, 2, 3});
  Optimizer optimizer = make_optimizer(lbfgs({}), parameters);
  optimizer.step_with_closure([&parameters] {
    const auto x = parameters.values<double>("x");
    parameters.set_gradient<double>("x", {x[0] - 1, x[1] - 2});
    return ((x[0] - 1) * (x[0] - 1) + (x[1] - 2) * (x[1] - 2)) / 2;
  });
  EXPECT_NEAR(parameters.values<double>("x")[1], 2, 1e-6);
  EXPECT_EQ(parameters.values<double>("unused")[1], 2);
}

TEST(LbfgsTest, MovesAllParametersAsOneGroup) {
  FlatParametersDouble parameters(DType::float64, {{"a", {1}}, {"b", {1}}});
  const std::vector<ParamGroup> one = make_optimizer(lbfgs({}), parameters).groups();
  std::vector<ParamGroup> two = {one[0], one[0]};
  two[0].parameters = {"a"};
  two[1].parameters = {"b"};
  EXPECT_THROW(Optimizer(find_rule("lbfgs"), two, parameters), std::logic_error);
  EXPECT_NO_THROW(Optimizer(find_rule("lbfgs"), one, parameters));
}

TEST(LbfgsTest, HasNoOtherStep) {
  Bowl bowl(OptionValues{});
  EXPECT_THROW(bowl.optimizer().step(), std::logic_error);
}

// ---- through the wrapper: micro_batches, again and again

class LbfgsWrapperTest : public ::testing::Test {
 protected:
  OptimWrapper wrap(const OptimWrapper::WrapperOptions& options) {
    return {make_optimizer(lbfgs({}), parameters_), parameters_, options};
  }
  /// (w - target)^2 / 2
  Tensor loss(double target) const { return (parameters_.leaf(0) - target).square().sum() / 2; }

  testing::LeafParameters parameters_{DType::float64, {{"w", {1}}}};
};

// Their mean is least at the mean of the targets.
TEST_F(LbfgsWrapperTest, EveryEvaluationGoesThroughAllMicroBatches) {
  OptimWrapper wrapper = wrap({.accumulation_steps = 3});
  EXPECT_TRUE(wrapper.uses_closure());
  int evaluations = 0;
  for (std::int64_t step = 1; step <= 2; ++step) {
    const UpdateReport report = wrapper.update_with_closure([&] {
      ++evaluations;
      double mean = 0;
      for (const double target : {1.0, 2.0, 6.0}) {
        EXPECT_EQ(wrapper.completes_step(), target == 6);
        const Tensor of_micro_batch = loss(target);
        EXPECT_FALSE(wrapper.update_params(of_micro_batch).updated);
        mean += of_micro_batch.item<double>() / 3;
      }
      return mean;
    });
    EXPECT_TRUE(report.updated);
    EXPECT_EQ(report.evaluations, evaluations);
    EXPECT_EQ(wrapper.micro_batches_done(), 3 * step);
    EXPECT_NEAR(parameters_.values<double>("w")[0], 3, 1e-9);
    if (step == 1) {
      EXPECT_GE(evaluations, 2);
      EXPECT_DOUBLE_EQ(report.grad_norm.value(), 3);
    }
    evaluations = 0;
  }
}

TEST_F(LbfgsWrapperTest, HasNoUpdateWithoutClosure) {
  OptimWrapper wrapper = wrap({});
  EXPECT_THROW(wrapper.update_params(loss(1)), std::logic_error);
}

TEST_F(LbfgsWrapperTest, NeitherClipsNorScales) {
  EXPECT_THROW(wrap({.clip = {.max_norm = 1}}), ConfigError);
  EXPECT_THROW(wrap({.clip = {.max_value = 1}}), ConfigError);
  EXPECT_THROW(wrap({.scaler = GradScalerOptions{}}), ConfigError);
}

}  // namespace lbfgs_test
}  // namespace lockstep::optim
