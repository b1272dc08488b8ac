// SPDX-License-Identifier: BSD-3-Clause
#include "optim/clip.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "make_optimizer.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace clip_test {

using testing::FlatParametersDouble;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Gradients 3 and -4 in two parameters, none in a third.
class ClipTest : public ::testing::Test {
 protected:
  ClipTest() : parameters_(DType::float64, {{"a", {1}}, {"b", {1}}, {"none", {1}}}) {
    parameters_.set_gradient<double>("a", {3});
    parameters_.set_gradient<double>("b", {-4});
  }
  FlatParametersDouble parameters_;
};

TEST_F(ClipTest, AFactorIsThatOfTheGradients) {
  EXPECT_EQ(gradient_norm(parameters_, 2, 0.5), 2.5);
  EXPECT_EQ(gradient_norm(parameters_, 1, 0.5), 3.5);
  EXPECT_EQ(gradient_norm(parameters_, kInfinity, 0.5), 2);
  parameters_.set_gradient<double>("a", {3e200});
  parameters_.set_gradient<double>("b", {0});
  EXPECT_NEAR(gradient_norm(parameters_, 3, 1e-200), 3, 1e-14);
}

TEST_F(ClipTest, GradientsAreFiniteOnAllRanksOrNone) {
  EXPECT_TRUE(are_gradients_finite(parameters_));
  parameters_.of_others = {2};
  EXPECT_FALSE(are_gradients_finite(parameters_));
  parameters_.of_others = {};
  for (const double bad : {kInfinity, -kInfinity, kNan}) {
    parameters_.set_gradient<double>("b", {bad});
    EXPECT_FALSE(are_gradients_finite(parameters_)) << bad;
  }
  FlatParametersDouble floats(DType::float32, {{"w", {5000}}});
  std::vector<float> values(5000, std::numeric_limits<float>::max());
  floats.set_gradient<float>("w", values);
  EXPECT_TRUE(are_gradients_finite(floats));
  values[4999] = std::numeric_limits<float>::infinity();
  floats.set_gradient<float>("w", values);
  EXPECT_FALSE(are_gradients_finite(floats));
}

TEST_F(ClipTest, NormsOfAllGradientsAsOneVector) {
  EXPECT_EQ(gradient_norm(parameters_, 2), 5);
  EXPECT_EQ(gradient_norm(parameters_, 1), 7);
  EXPECT_EQ(gradient_norm(parameters_, kInfinity), 4);
  EXPECT_NEAR(gradient_norm(parameters_, 3), std::cbrt(91), 1e-14);
  EXPECT_THROW(gradient_norm(parameters_, 0), std::invalid_argument);
}

TEST_F(ClipTest, OtherOwnersPartsBelongToTheNorm) {
  parameters_.own("b", 1, 1);  // another rank's
  parameters_.of_others = {0, 16, 0};
  EXPECT_EQ(gradient_norm(parameters_, 2), 5);
  parameters_.of_others = {0, 6, 0};
  EXPECT_EQ(gradient_norm(parameters_, kInfinity), 6);
}

TEST_F(ClipTest, ANormNeverHidesWhatIsNotFinite) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    parameters_.set_gradient<double>("none", {bad});
    for (const double norm_type : {2.0, 1.0, 3.0, kInfinity}) {
      EXPECT_FALSE(std::isfinite(gradient_norm(parameters_, norm_type))) << bad << " " << norm_type;
    }
  }
}

TEST(ClipChangeTest, ALargeNormIsScaledDown) {
  EXPECT_EQ(change_by({.max_norm = 1}, 5).factor, 1 / (5 + 1e-6));
  EXPECT_TRUE(std::isnan(change_by({.max_norm = 1}, kNan).factor));
}

TEST(ClipChangeTest, ASmallNormIsLeftAlone) {
  EXPECT_TRUE(change_by({.max_norm = 35}, 5).is_none());
  EXPECT_TRUE(change_by({}, 5).is_none());
}

TEST(ClipChangeTest, ValuesAreClamped) {
  const GradientChange change = change_by({.max_value = 3.5}, 0);
  EXPECT_EQ(change.factor, 1);
  EXPECT_EQ(change.limit, 3.5);
}

TEST(ClipChangeTest, AStepScalesThenClampsTheGradientsThatItSees) {
  FlatParametersDouble parameters(DType::float32, {{"w", {3}}});
  parameters.set_gradient<float>("w", {2, -16, 0.5});
  Optimizer optimizer = make_optimizer({{"lr", "1"}}, parameters);
  optimizer.step({.factor = 0.5, .limit = 4});
  const auto values = parameters.values<float>("w");
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), (std::vector<float>{-1, 4, -0.25}));
  EXPECT_EQ(parameters.gradient_of<float>("w"), (std::vector<float>{2, -16, 0.5}));
}

TEST(ClipPartTest, OnlyThisRanksPartsCount) {
  FlatParametersDouble parameters(DType::float32, {{"w", {32}}});
  parameters.set_gradient("w", std::vector<float>(32, 2));
  parameters.own("w", 16, 32);
  EXPECT_EQ(gradient_norm(parameters, 1), 32);
  EXPECT_EQ(gradient_norm(parameters, 2), 8);
}

// Ten pieces and a rest, whose sums round: who owns which piece changes no bit.
TEST(ClipPartTest, ANormHasTheSameBitsWhoeverOwnsThePieces) {
  constexpr std::int64_t kCount = 10 * kPieceElements + 77;
  std::vector<float> numbers(kCount);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i)) * 1e-3F;
  const auto parameters_with = [&](std::int64_t begin, std::int64_t end) {
    auto parameters = std::make_unique<FlatParametersDouble>(
        DType::float32, std::vector<FlatParametersDouble::Parameter>{{"w", {kCount}}});
    parameters->set_gradient("w", numbers);
    parameters->own("w", begin, end);
    return parameters;
  };
  const double whole = gradient_norm(*parameters_with(0, kCount), 2);
  for (const std::int64_t border : {std::int64_t{0}, 3 * kPieceElements, 9 * kPieceElements}) {
    // The sum that the owner of the first part would add: its pieces' sums of squares.
    const auto low = parameters_with(0, border);
    const auto high = parameters_with(border, kCount);
    low->visit_gradients(
        [&](const GradientPiece& piece) {
          FlatParametersDouble one(DType::float32, {{"w", {piece.count}}});
          const auto* values = reinterpret_cast<const float*>(piece.values);
          one.set_gradient("w", std::vector<float>(values, values + piece.count));
          const double norm = gradient_norm(one, 2);
          high->of_others.push_back(norm * norm);
        },
        true);
    EXPECT_NEAR(gradient_norm(*high, 2), whole, whole * 1e-15) << border;
  }
}

// 2^24 + 1 has no float: only a sum in double counts every element.
TEST(ClipPartTest, SumsAreKeptInDouble) {
  constexpr std::int64_t kCount = 37;
  FlatParametersDouble parameters(DType::float32, {{"large", {1}}, {"small", {kCount}}});
  parameters.set_gradient<float>("large", {4096});
  parameters.set_gradient("small", std::vector<float>(kCount, 1));
  EXPECT_EQ(gradient_norm(parameters, 2), std::sqrt(4096.0 * 4096.0 + kCount));
}

}  // namespace clip_test
}  // namespace lockstep::optim
