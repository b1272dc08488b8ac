// SPDX-License-Identifier: BSD-3-Clause
// All numbers are sums of powers of two and small enough that nothing rounds, unless a tolerance says so.
#include <gtest/gtest.h>

#include <cmath>

#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace {

using testing::FlatParametersDouble;

/// A parameter that starts at 1, after steps with these gradients.
template <class T>
T after(const Settings& settings, const std::vector<T>& gradients) {
  FlatParametersDouble parameters(size_of(DType::float32) == sizeof(T) ? DType::float32 : DType::float64, {{"w", {1}}});
  parameters.set_values<T>("w", {1});
  Optimizer optimizer = make_optimizer(settings, parameters);
  for (const T gradient : gradients) {
    parameters.set_gradient<T>("w", {gradient});
    optimizer.step();
  }
  return parameters.values<T>("w")[0];
}

template <class T>
class RulesTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RulesTest, Types);

TYPED_TEST(RulesTest, SgdMovesAgainstTheGradient) {
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}}, {2}), 0.5);
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"maximize", "true"}}, {2}), 1.5);
}

TYPED_TEST(RulesTest, SgdAddsWeightDecayToTheGradient) {
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"weight_decay", "0.5"}}, {2}), 0.375);
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"weight_decay", "0.5"}, {"maximize", "true"}}, {2}), 1.375);
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"weight_decay", "0.5"}, {"momentum", "0.5"}}, {2}), 0.375);
}

TYPED_TEST(RulesTest, SgdKeepsAVelocity) {
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"momentum", "0.5"}}, {2}), 0.5);
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"momentum", "0.5"}}, {2, 2}), -0.25);
}

TYPED_TEST(RulesTest, SgdDampensFromTheSecondStepOn) {
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"momentum", "0.5"}, {"dampening", "0.5"}}, {2}), 0.5);
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"momentum", "0.5"}, {"dampening", "0.5"}}, {2, 2}), 0);
}

TYPED_TEST(RulesTest, SgdLooksAheadWithNesterov) {
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"momentum", "0.5"}, {"nesterov", "true"}}, {2}), 0.25);
  EXPECT_EQ(after<TypeParam>({{"lr", "0.25"}, {"momentum", "0.5"}, {"nesterov", "true"}}, {2, 2}), -0.625);
}

const Settings kAdamW = {{"name", "adamw"}, {"lr", "0.25"}, {"betas", "0.5,0.75"}, {"eps", "0"}};

Settings adamw_with(const std::string& key, const std::string& value) {
  Settings settings = kAdamW;
  settings.emplace_back(key, value);
  return settings;
}

// The first step has the length of lr, whatever the gradient.
TYPED_TEST(RulesTest, AdamWFirstStepIsLr) {
  EXPECT_EQ(after<TypeParam>(kAdamW, {4}), 0.75);
  EXPECT_EQ(after<TypeParam>(adamw_with("maximize", "true"), {4}), 1.25);
}

TYPED_TEST(RulesTest, AdamWShrinksTheParameterBesideTheGradient) {
  EXPECT_EQ(after<TypeParam>(adamw_with("weight_decay", "0.5"), {4}), 0.625);
}

TYPED_TEST(RulesTest, AdamWAddsEpsToTheRoot) { EXPECT_EQ(after<TypeParam>(adamw_with("eps", "4"), {4}), 0.875); }

// Gradients 4, 0: means 2, 1; mean squares 4, 3; corrections 1 - 0.25 and 1 - 0.5625.
TYPED_TEST(RulesTest, AdamWCorrectsTheBiasOfItsMeans) {
  const double second_step = 0.25 / 0.75 * 1 / (std::sqrt(3) / std::sqrt(0.4375));
  EXPECT_NEAR(after<TypeParam>(kAdamW, {4, 0}), 0.75 - second_step, 2 * std::numeric_limits<TypeParam>::epsilon());
}

TYPED_TEST(RulesTest, AmsgradDividesByTheLargestMeanSquare) {
  const double second_step = 0.25 / 0.75 * 1 / (std::sqrt(4) / std::sqrt(0.4375));
  EXPECT_NEAR(after<TypeParam>(adamw_with("amsgrad", "true"), {4, 0}), 0.75 - second_step,
              2 * std::numeric_limits<TypeParam>::epsilon());
}

/// Numbers of many magnitudes and both signs.
template <class T>
std::vector<T> varied(std::int64_t count, double seed) {
  std::vector<T> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const double angle = seed + static_cast<double>(i);
    numbers.push_back(static_cast<T>(std::sin(angle) * std::exp(4 * std::cos(3 * angle))));
  }
  return numbers;
}

template <class T>
struct Arrays {
  explicit Arrays(std::int64_t count)
      : parameter(varied<T>(count, 1)), gradient(varied<T>(count, 2)), states(3, varied<T>(count, 3)) {
    for (auto& state : states) {
      for (T& value : state) value = std::abs(value);  // mean squares have roots
    }
  }
  /// Updates elements [begin, end).
  void update(const Rule& rule, const Options& options, std::int64_t begin, std::int64_t end) {
    const std::array<T*, 3> state = {states[0].data() + begin, states[1].data() + begin, states[2].data() + begin};
    const Stretch<T> stretch{parameter.data() + begin, gradient.data() + begin, state.data(), end - begin};
    const Coefficients coefficients = rule.coefficients(options, 3);
    if constexpr (sizeof(T) == 4) {
      rule.update32(coefficients, stretch);
    } else {
      rule.update64(coefficients, stretch);
    }
  }
  bool operator==(const Arrays&) const = default;

  std::vector<T> parameter;
  std::vector<T> gradient;
  std::vector<std::vector<T>> states;
};

const std::vector<Settings> kEveryLoop = {
    {{"weight_decay", "0.1"}},
    {{"momentum", "0.9"}, {"weight_decay", "0.1"}, {"dampening", "0.3"}},
    {{"momentum", "0.9"}, {"nesterov", "true"}},
    {{"name", "adamw"}, {"lr", "0.01"}, {"weight_decay", "0.1"}},
    {{"name", "adamw"}, {"lr", "0.01"}, {"amsgrad", "true"}},
};

Options options_of(const Section& optim) {
  const std::vector<ParameterInfo> one = {{"w", 2}};
  return build_groups(optim, find_rule(optim.text("name")), one).front().options;
}

// So a parameter has the same bits however its elements are shared out among ranks.
TYPED_TEST(RulesTest, AnySplitGivesTheSameBits) {
  constexpr std::int64_t kCount = 1000;
  for (const Settings& settings : kEveryLoop) {
    const Section optim = section_of(settings);
    const Rule& rule = find_rule(optim.text("name"));
    const Options options = options_of(optim);
    Arrays<TypeParam> whole(kCount);
    Arrays<TypeParam> split(kCount);
    EXPECT_EQ(whole, split);
    whole.update(rule, options, 0, kCount);
    EXPECT_NE(whole, split);
    std::int64_t length = 1;
    for (std::int64_t begin = 0; begin < kCount; begin += length, length = length % 37 + 5) {
      split.update(rule, options, begin, std::min(begin + length, kCount));
    }
    EXPECT_EQ(whole, split) << rule.name;
  }
}

// Nor do the bits depend on the width of the processor's vectors.
TYPED_TEST(RulesTest, SgdHasTheBitsOfScalarArithmetic) {
  using T = TypeParam;
  const Options options = options_of(section_of({{"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0.01"}}));
  Arrays<T> actual(1000);
  Arrays<T> expected = actual;
  actual.update(find_rule("sgd"), options, 0, 1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    volatile T decayed = static_cast<T>(0.01) * expected.parameter[i];
    decayed = expected.gradient[i] + decayed;
    volatile T velocity = static_cast<T>(0.9) * expected.states[0][i];
    velocity = velocity + decayed;
    volatile T change = static_cast<T>(0.1) * velocity;
    expected.parameter[i] = expected.parameter[i] - change;
    expected.states[0][i] = velocity;
  }
  EXPECT_EQ(actual, expected);
}

TYPED_TEST(RulesTest, AdamWHasTheBitsOfScalarArithmetic) {
  using T = TypeParam;
  const Section section =
      section_of({{"name", "adamw"}, {"lr", "0.01"}, {"betas", "0.9,0.99"}, {"weight_decay", "0.1"}});
  Arrays<T> actual(1000);
  Arrays<T> expected = actual;
  actual.update(find_rule("adamw"), options_of(section), 0, 1000);  // as the third update
  const auto step_size = static_cast<T>(0.01 / (1 - std::pow(0.9, 3)));
  const auto root_correction = static_cast<T>(std::sqrt(1 - std::pow(0.99, 3)));
  for (std::size_t i = 0; i < 1000; ++i) {
    const T gradient = expected.gradient[i];
    volatile T mean = static_cast<T>(1 - 0.9) * (gradient - expected.states[0][i]);
    mean = expected.states[0][i] + mean;
    volatile T kept = static_cast<T>(0.99) * expected.states[1][i];
    volatile T square = static_cast<T>(1 - 0.99) * gradient;
    square = square * gradient;
    square = kept + square;
    volatile T denominator = std::sqrt(square) / root_correction;
    denominator = denominator + static_cast<T>(1e-8);
    volatile T change = mean / denominator;
    change = step_size * change;
    kept = static_cast<T>(1 - 0.01 * 0.1) * expected.parameter[i];
    expected.parameter[i] = kept - change;
    expected.states[0][i] = mean;
    expected.states[1][i] = square;
  }
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace lockstep::optim
