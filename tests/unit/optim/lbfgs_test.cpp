// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/lbfgs.hpp>

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

/// 0.5 * (x0 - 3)^2 + 4.5 * (x1 + 1)^2: least at [3, -1].
double bowl(std::span<const double> x, std::span<double> gradient) {
  gradient[0] = x[0] - 3;
  gradient[1] = 9 * (x[1] + 1);
  return (gradient[0] * gradient[0] + gradient[1] * gradient[1] / 9) / 2;
}

TEST(LbfgsTest, FindsTheLeast) {
  for (const bool strong_wolfe : {false, true}) {
    std::vector<double> x = {0, 0};
    Lbfgs<double> lbfgs({.strong_wolfe = strong_wolfe});
    EXPECT_EQ(lbfgs.step(x, bowl), 9);
    EXPECT_NEAR(x[0], 3, 1e-6) << strong_wolfe;
    EXPECT_NEAR(x[1], -1, 1e-6) << strong_wolfe;
  }
}

// The first step goes down the gradient [-3, 9], by min(1, 1 / 12) * lr.
TEST(LbfgsTest, TheFirstStepHasBoundedLength) {
  std::vector<double> x = {0, 0};
  Lbfgs<double>({.lr = 0.5, .max_iterations = 1}).step(x, bowl);
  EXPECT_DOUBLE_EQ(x[0], 3.0 / 24);
  EXPECT_DOUBLE_EQ(x[1], -9.0 / 24);
}

TEST(LbfgsTest, StaysWhereTheGradientIsZero) {
  std::vector<double> x = {3, -1};
  int calls = 0;
  const double loss = Lbfgs<double>({}).step(x, [&calls](std::span<const double> at, std::span<double> gradient) {
    ++calls;
    return bowl(at, gradient);
  });
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(x, (std::vector<double>{3, -1}));
}

TEST(LbfgsTest, EvaluatesNoMoreThanItMay) {
  for (const std::int64_t most : {1, 2, 3}) {
    std::vector<double> x = {0, 0};
    std::int64_t calls = 0;
    Lbfgs<double>({.lr = 0.1, .max_evaluations = most}).step(x, [&](std::span<const double> at, std::span<double> g) {
      ++calls;
      return bowl(at, g);
    });
    EXPECT_EQ(calls, std::max<std::int64_t>(most, 2)) << most;  // the first step is always looked at
  }
}

TEST(LbfgsTest, RefusesBadOptions) {
  EXPECT_THROW(Lbfgs<double>({.lr = -1}), ConfigError);
  EXPECT_THROW(Lbfgs<double>({.max_iterations = 0}), ConfigError);
  EXPECT_THROW(Lbfgs<double>({.max_evaluations = -1}), ConfigError);
  EXPECT_THROW(Lbfgs<double>({.history_size = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::optim
