// SPDX-License-Identifier: BSD-3-Clause
// All numbers are sums of powers of two and small enough that nothing rounds, unless a tolerance says so.
#include <gtest/gtest.h>

#include <cmath>

#include "every_loop.hpp"
#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace rules_test {

using testing::FlatParametersDouble;

/// A parameter that starts at 1, after steps with these gradients.
template <class T>
T after(const OptionValues& settings, const std::vector<T>& gradients) {
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

const OptionValues kAdamW = {
    {"name", "adamw"}, {"lr", "0.25"}, {"betas", "0.5,0.75"}, {"eps", "0"}, {"weight_decay", "0"}};

OptionValues adamw_with(const std::string& key, const std::string& value) {
  OptionValues settings = kAdamW;
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

// Gradients 4, 0 = means 2, 1; mean squares 4, 3; corrections 1 - 0.25 and 1 - 0.5625.
TYPED_TEST(RulesTest, AdamWCorrectsTheBiasOfItsMeans) {
  const double second_step = 0.25 / 0.75 * 1 / (std::sqrt(3) / std::sqrt(0.4375));
  EXPECT_NEAR(after<TypeParam>(kAdamW, {4, 0}), 0.75 - second_step, 2 * std::numeric_limits<TypeParam>::epsilon());
}

TYPED_TEST(RulesTest, AmsgradDividesByTheLargestMeanSquare) {
  const double second_step = 0.25 / 0.75 * 1 / (std::sqrt(4) / std::sqrt(0.4375));
  EXPECT_NEAR(after<TypeParam>(adamw_with("amsgrad", "true"), {4, 0}), 0.75 - second_step,
              2 * std::numeric_limits<TypeParam>::epsilon());
}

// Step sizes 1 and 1 / (1 + 1 * 1 * 1), decays beside them 1 - 0.5 and 1 - 0.5 * 0.5; the average is the parameter.
TYPED_TEST(RulesTest, AsgdTakesSmallerSteps) {
  const OptionValues settings = {{"name", "asgd"}, {"lr", "1"}, {"lambd", "0.5"}, {"eta_power", "1"}};
  EXPECT_EQ(after<TypeParam>(settings, {2}), 1 * 0.5 - 2);
  const double second_size = 1 / 1.5;
  EXPECT_NEAR(after<TypeParam>(settings, {2, 4}), -1.5 * (1 - 0.5 * second_size) - second_size * 4,
              8 * std::numeric_limits<TypeParam>::epsilon());
}

// lambd 0 = the parameter is 1 - 1, 0 - 2, -2 - 4, -6 - 8; after the second step the average moves by 1, 1/2, 1/3.
TYPED_TEST(RulesTest, AsgdAveragesFromT0On) {
  using T = TypeParam;
  FlatParametersDouble parameters(sizeof(T) == 4 ? DType::float32 : DType::float64, {{"w", {1}}});
  parameters.set_values<T>("w", {1});
  Optimizer optimizer = make_optimizer({{"name", "asgd"}, {"lr", "1"}, {"lambd", "0"}, {"t0", "1"}}, parameters);
  const std::vector<T> averages = {0, -2, -6, -6 - (T{8} / 2)};
  for (std::size_t k = 0; k < averages.size(); ++k) {
    parameters.set_gradient<T>("w", {static_cast<T>(1 << k)});
    optimizer.step();
    EXPECT_EQ(*reinterpret_cast<const T*>(optimizer.state(0, 0).data()), averages[k]) << k;
  }
}

// Sizes 1; 1 * 2; after a change of sign 2 / 4 without a step; then 0.5, without knowledge of a former gradient.
TYPED_TEST(RulesTest, RpropHeedsSignsOnly) {
  const OptionValues settings = {{"name", "rprop"}, {"lr", "1"}, {"etas", "0.25, 2"}};
  EXPECT_EQ(after<TypeParam>(settings, {16}), 0);
  EXPECT_EQ(after<TypeParam>(settings, {16, 0.5}), -2);
  EXPECT_EQ(after<TypeParam>(settings, {16, 0.5, -3}), -2);
  EXPECT_EQ(after<TypeParam>(settings, {16, 0.5, -3, -3}), -1.5);
  EXPECT_EQ(after<TypeParam>(settings, {0}), 1);
  OptionValues bounded = settings;
  bounded.emplace_back("step_sizes", "0.75, 1.5");
  EXPECT_EQ(after<TypeParam>(bounded, {16, 0.5}), -1.5);
  EXPECT_EQ(after<TypeParam>(bounded, {16, 0.5, -3, -3}), -0.75);
}

/// The sum of squares that Adagrad keeps of a parameter.
template <class T>
std::vector<T> sum_of(Optimizer& optimizer, const FlatParametersDouble& parameters, std::size_t segment) {
  const Segment& part = parameters.blocks()[0].segments[segment];
  const auto* const first = reinterpret_cast<const T*>(optimizer.state(0, 0).data()) + part.offset;
  return {first, first + part.count};
}

const OptionValues kAdagrad = {{"name", "adagrad"}, {"lr", "1"}, {"eps", "0"}, {"initial_accumulator_value", "0.25"}};

// A parameter without a gradient keeps the initial value.
TYPED_TEST(RulesTest, AdagradBeginsWithTheInitialValue) {
  using T = TypeParam;
  FlatParametersDouble parameters(sizeof(T) == 4 ? DType::float32 : DType::float64, {{"w", {3}}, {"unused", {2}}});
  Optimizer optimizer = make_optimizer(kAdagrad, parameters);
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 0), std::vector<T>(3, 0.25));
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 1), std::vector<T>(2, 0.25));
  parameters.set_gradient<T>("w", {2, 0, -1});
  optimizer.step();
  optimizer.step();
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 0), (std::vector<T>{8.25, 0.25, 2.25}));
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 1), std::vector<T>(2, 0.25));
  EXPECT_EQ(optimizer.steps(0)[1], 0);
}

// Each rank fills only what it owns.
TYPED_TEST(RulesTest, AdagradFillsItsOwnPart) {
  using T = TypeParam;
  FlatParametersDouble parameters(sizeof(T) == 4 ? DType::float32 : DType::float64,
                                  {{"w", {kPieceElements + 2}}, {"of_others", {2}}});
  parameters.own("w", kPieceElements, kPieceElements + 2);
  parameters.own("of_others", 0, 0);
  Optimizer optimizer = make_optimizer(kAdagrad, parameters);
  std::vector<T> expected(kPieceElements + 2);
  expected[kPieceElements] = expected[kPieceElements + 1] = 0.25;
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 0), expected);
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 1), std::vector<T>(2));
}

// Checkpoints of older versions hold 0 for a parameter that has had no update.
TYPED_TEST(RulesTest, AdagradDoesNotReadTheSumBeforeTheFirstUpdate) {
  using T = TypeParam;
  FlatParametersDouble parameters(sizeof(T) == 4 ? DType::float32 : DType::float64, {{"w", {1}}});
  Optimizer optimizer = make_optimizer(kAdagrad, parameters);
  *reinterpret_cast<T*>(optimizer.state(0, 0).data()) = 0;
  parameters.set_gradient<T>("w", {2});
  optimizer.step();
  EXPECT_EQ(sum_of<T>(optimizer, parameters, 0), std::vector<T>{4.25});
}

// Every rule climbs as far with `maximize` as it would descend with the opposite gradients.
TYPED_TEST(RulesTest, MaximizeTurnsTheGradientRound) {
  for (OptionValues settings : every_loop()) {
    settings.emplace_back("maximize", "true");
    const TypeParam climbed = after<TypeParam>(settings, {2, -1, 3});
    settings.back().second = "false";
    EXPECT_EQ(climbed, after<TypeParam>(settings, {-2, 1, -3})) << settings.front().second;
    EXPECT_NE(climbed, after<TypeParam>(settings, {2, -1, 3})) << settings.front().second;
  }
}

/// The parameter [3, 4], its gradient [0.6, 0.8], weight decay 0.1: norms 5 and 1.
template <class T>
std::vector<T> after_one_step(OptionValues settings) {
  FlatParametersDouble parameters(sizeof(T) == 4 ? DType::float32 : DType::float64, {{"w", {2}}});
  parameters.set_values<T>("w", {3, 4});
  parameters.set_gradient<T>("w", {static_cast<T>(0.6), static_cast<T>(0.8)});
  settings.emplace_back("weight_decay", "0.1");
  settings.emplace_back("eps", "0");
  make_optimizer(settings, parameters).step();
  const auto values = parameters.values<T>("w");
  return {values.begin(), values.end()};
}

TYPED_TEST(RulesTest, TrustRatiosFollowTheNorms) {
  struct Expected {
    OptionValues settings;
    double first;
    double second;
  };
  const std::vector<Expected> all = {
      // 0.02 * 5 / (1 + 0.1 * 5) = 1/15, of [0.9, 1.2]
      {{{"name", "larc"}, {"lr", "0.1"}, {"trust_coefficient", "0.02"}}, 2.994, 3.992},
      {{{"name", "larc"}, {"lr", "0.1"}, {"trust_coefficient", "0.02"}, {"trust_clip", "true"}}, 2.94, 3.92},
      {{{"name", "larc"}, {"lr", "0.01"}, {"trust_coefficient", "0.02"}, {"trust_clip", "true"}}, 2.991, 3.988},
      {{{"name", "lars"}, {"lr", "0.1"}, {"trust_coefficient", "0.02"}}, 2.994, 3.992},
      // 0.001 * 5 / 1.5, the norm of [0.9, 1.2] being 1.5
      {{{"name", "lars"}, {"lr", "0.1"}, {"joint_norm", "true"}}, 2.9997, 3.9996},
      // a vector, not adapted
      {{{"name", "lars"}, {"lr", "0.1"}, {"adapt_vectors", "false"}}, 2.91, 3.88},
      // the first step of Adam is [1, 1]; with weight decay [1.3, 1.4]; its ratio 5 / sqrt(3.65)
      {{{"name", "lamb"}, {"lr", "0.1"}}, 3 - 0.1 * 1.3 * 5 / std::sqrt(3.65), 4 - 0.1 * 1.4 * 5 / std::sqrt(3.65)},
      {{{"name", "lamb"}, {"lr", "0.1"}, {"trust_clip", "true"}}, 2.87, 3.86},
  };
  const double tolerance = sizeof(TypeParam) == 4 ? 1e-6 : 1e-14;
  for (const Expected& expected : all) {
    const auto values = after_one_step<TypeParam>(expected.settings);
    EXPECT_NEAR(values[0], expected.first, tolerance) << expected.settings.front().second;
    EXPECT_NEAR(values[1], expected.second, tolerance) << expected.settings.front().second;
  }
}

// If a norm is zero there is nothing to adapt to: lars takes the plain step, larc does not even decay.
TYPED_TEST(RulesTest, ZeroNormsAreNotAdaptedTo) {
  const OptionValues decay = {{"lr", "0.5"}, {"weight_decay", "0.5"}};
  for (const auto& [name, expected] : std::vector<std::pair<std::string, double>>{{"lars", 0.75}, {"larc", 1}}) {
    OptionValues settings = decay;
    settings.emplace_back("name", name);
    EXPECT_EQ(after<TypeParam>(settings, {0}), expected) << name;
  }
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
    const ElementRange<T> range{parameter.data() + begin, gradient.data() + begin, state.data(), end - begin};
    const ElementRule& elements = *rule.elements();
    elements.update(elements.coefficients(options, 3), range);
  }
  bool operator==(const Arrays&) const = default;

  std::vector<T> parameter;
  std::vector<T> gradient;
  std::vector<std::vector<T>> states;
};

Options options_of(const Section& optim) {
  const std::vector<ParameterInfo> one = {{"w", 2}};
  return build_groups(optim, find_rule(optim.text("name")), one).front().options;
}

// So a parameter has the same bits however its elements are shared out among ranks.
TYPED_TEST(RulesTest, AnySplitGivesTheSameBits) {
  constexpr std::int64_t kCount = 1000;
  for (const OptionValues& settings : every_loop()) {
    const Section optim = section_of(settings);
    const Rule& rule = find_rule(optim.text("name"));
    if (rule.is_whole()) continue;  // one owner has all
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
  actual.update(find_rule("adamw"), options_of(section), 0, 1000);  // counted as the third update
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

}  // namespace rules_test
}  // namespace lockstep::optim
