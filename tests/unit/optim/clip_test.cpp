// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace {

using testing::FlatParametersDouble;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string error_of(const std::string& text) {
  try {
    Clip::parse(text, "train.clip_grad (a.ini:3)");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Gradients 3 and -4 in two parameters, none in a third.
class ClipTest : public ::testing::Test {
 protected:
  ClipTest() : parameters_(DType::float64, {{"a", {1}}, {"b", {1}}, {"none", {1}}}) {
    parameters_.set_gradient<double>("a", {3});
    parameters_.set_gradient<double>("b", {-4});
  }
  double a() { return parameters_.gradient_of<double>("a")[0]; }
  double b() { return parameters_.gradient_of<double>("b")[0]; }

  FlatParametersDouble parameters_;
};

TEST(ClipParseTest, ReadsNormValueAndOff) {
  EXPECT_EQ(Clip::parse("", "default").max_norm, 0);
  EXPECT_EQ(Clip::parse("", "default").max_value, 0);
  EXPECT_EQ(Clip::parse("norm:1.5", "default").max_norm, 1.5);
  EXPECT_EQ(Clip::parse("norm:1.5", "default").norm_type, 2);
  EXPECT_EQ(Clip::parse("norm:1.5", "default").max_value, 0);
  EXPECT_EQ(Clip::parse("value:0.5", "default").max_value, 0.5);
  EXPECT_EQ(Clip::parse("value:0.5", "default").max_norm, 0);
}

TEST(ClipParseTest, RefusesInOneSentence) {
  EXPECT_EQ(error_of("1.0"),
            "train.clip_grad (a.ini:3): '1.0' is not a way to clip; write norm:1.0, value:0.5 or nothing");
  EXPECT_EQ(error_of("norms:1"),
            "train.clip_grad (a.ini:3): 'norms:1' is not a way to clip; write norm:1.0, value:0.5 or nothing");
  EXPECT_EQ(error_of("norm:0"), "train.clip_grad (a.ini:3): norm: '0' is not a number > 0");
  EXPECT_EQ(error_of("value:x"), "train.clip_grad (a.ini:3): value: 'x' is not a number > 0");
  EXPECT_EQ(error_of("norm:"), "train.clip_grad (a.ini:3): norm: '' is not a number > 0");
}

TEST_F(ClipTest, NormsOfAllGradientsAsOneVector) {
  EXPECT_EQ(gradient_norm(parameters_, 2), 5);
  EXPECT_EQ(gradient_norm(parameters_, 1), 7);
  EXPECT_EQ(gradient_norm(parameters_, kInfinity), 4);
  EXPECT_NEAR(gradient_norm(parameters_, 3), std::cbrt(91), 1e-14);
  EXPECT_THROW(gradient_norm(parameters_, 0), std::invalid_argument);
}

TEST_F(ClipTest, OtherSlicesBelongToTheNorm) {
  parameters_.sum_of_others = 119;
  parameters_.max_of_others = 6;
  EXPECT_EQ(gradient_norm(parameters_, 2), 12);
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

TEST_F(ClipTest, ALargeNormIsScaledDown) {
  clip_gradients(parameters_, {.max_norm = 1}, 5);
  EXPECT_EQ(a(), 3 * (1 / (5 + 1e-6)));
  EXPECT_EQ(b(), -4 * (1 / (5 + 1e-6)));
}

TEST_F(ClipTest, ASmallNormIsLeftAlone) {
  clip_gradients(parameters_, {.max_norm = 35}, 5);
  EXPECT_EQ(a(), 3);
  EXPECT_EQ(b(), -4);
}

TEST_F(ClipTest, ValuesAreClamped) {
  clip_gradients(parameters_, {.max_value = 3.5}, 0);
  EXPECT_EQ(a(), 3);
  EXPECT_EQ(b(), -3.5);
}

TEST(ClipSliceTest, OnlyThisRanksSliceCountsAndIsClipped) {
  FlatParametersDouble parameters(DType::float32, {{"w", {32}}});
  parameters.set_gradient("w", std::vector<float>(32, 2));
  parameters.own(16, 32);
  EXPECT_EQ(gradient_norm(parameters, 1), 32);
  EXPECT_EQ(gradient_norm(parameters, 2), 8);
  clip_gradients(parameters, {.max_value = 1}, 0);
  std::vector<float> expected(32, 2);
  std::fill(expected.begin() + 16, expected.end(), 1.0F);
  EXPECT_EQ(parameters.gradient_of<float>("w"), expected);
}

// 2^24 + 1 has no float: only a sum in double counts every element.
TEST(ClipSliceTest, SumsAreKeptInDouble) {
  constexpr std::int64_t kCount = 37;
  FlatParametersDouble parameters(DType::float32, {{"large", {1}}, {"small", {kCount}}});
  parameters.set_gradient<float>("large", {4096});
  parameters.set_gradient("small", std::vector<float>(kCount, 1));
  EXPECT_EQ(gradient_norm(parameters, 2), std::sqrt(4096.0 * 4096.0 + kCount));
}

}  // namespace
}  // namespace lockstep::optim
