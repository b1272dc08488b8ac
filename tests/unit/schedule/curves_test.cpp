// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <tuple>

namespace lockstep::schedule {
namespace curves_test {

constexpr RunLength kLength{.total_steps = 40, .steps_per_epoch = 4, .samples_per_step = 8};

std::vector<double> first(std::int64_t count, const std::string& rule, const Target& target = {}) {
  const Schedule schedule = parse({rule}, kLength, "test");
  std::vector<double> values;
  for (std::int64_t step = 0; step < count; ++step) values.push_back(schedule.value(step, target));
  return values;
}

void expect_near(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-15) << i;
}

std::string error_of(const std::string& rule, const RunLength& length = kLength) {
  try {
    parse({rule}, length, "test");
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    return text.substr(text.find("': ") + 3);
  }
  return "";
}

TEST(CurvesTest, QuadraticRisesAlongAParabola) {
  EXPECT_EQ(first(6, "quadratic,end=4"), (std::vector<double>{0, 1. / 16, 4. / 16, 9. / 16, 1, 1}));
}

TEST(CurvesTest, ExponentialCountsItsOwnUnit) {
  EXPECT_EQ(first(4, "exponential,gamma=0.5,end=2"), (std::vector<double>{1, 0.5, 0.25, 0.25}));
  EXPECT_EQ(first(9, "exponential,gamma=0.5,by=epoch"), (std::vector<double>{1, 1, 1, 1, .5, .5, .5, .5, .25}));
  const auto smooth = first(9, "exponential,gamma=0.5,by=epoch,smooth=true");
  EXPECT_NEAR(smooth[2], std::sqrt(0.5), 1e-15);  // half an epoch
  EXPECT_EQ(smooth[8], 0.25);
  EXPECT_EQ(first(3, "step,size=16,gamma=0.5,by=samples"), (std::vector<double>{1, 1, 0.5}));
  EXPECT_EQ(first(21, "multistep,milestones=0.25,0.5,gamma=0.5,by=run")[10], 0.5);
  EXPECT_EQ(first(21, "multistep,milestones=0.25,0.5,gamma=0.5,by=run")[20], 0.25);
}

TEST(CurvesTest, PolynomialFallsToItsFloor) {
  EXPECT_EQ(first(6, "polynomial,power=2,end=4,floor=0.5", {.base = 1.5}),
            (std::vector<double>{1.5, 0.5 + 9. / 16, 0.5 + 4. / 16, 0.5 + 1. / 16, 0.5, 0.5}));
}

TEST(CurvesTest, ACosineLongerThanItsHalfWaveComesBack) {
  expect_near(first(6, "cosine,length=2,final_factor=0.5"), {1, 0.75, 0.5, 0.75, 1, 0.75});
  expect_near(first(5, "cosine,start_factor=0.2,final_factor=1,end=4"),
              {0.2, 0.6 - 0.4 * std::sqrt(0.5), 0.6, 0.6 + 0.4 * std::sqrt(0.5), 1});
}

TEST(CurvesTest, InverseSqrtPeaksAtItsWarmup) {
  expect_near(first(17, "inverse_sqrt,warmup=4"),
              {0, 0.25, 0.5, 0.75, 1, std::sqrt(4. / 5), std::sqrt(4. / 6), std::sqrt(4. / 7), std::sqrt(0.5), 2. / 3,
               std::sqrt(0.4), std::sqrt(4. / 11), std::sqrt(1. / 3), std::sqrt(4. / 13), std::sqrt(4. / 14),
               std::sqrt(4. / 15), 0.5});
}

TEST(CurvesTest, WsdIsWarmUpStableAndDecay) {
  EXPECT_EQ(first(10, "wsd,warmup=2,decay=4,end=8"), (std::vector<double>{0, .5, 1, 1, 1, .75, .5, .25, 0, 0}));
  EXPECT_NEAR(first(6, "wsd,decay=4,end=4,shape=sqrt,final_factor=0.5")[1], 0.75, 1e-15);
  EXPECT_NEAR(first(6, "wsd,decay=4,end=4,shape=cosine")[2], 0.5, 1e-15);
}

TEST(CurvesTest, OneCycleRisesToItsBase) {
  EXPECT_EQ(first(6, "one_cycle,base=8,rise=0.5,start_factor=0.25,final_factor=0,shape=linear,end=4"),
            (std::vector<double>{2, 5, 8, 4, 0, 0}));
  expect_near(first(6, "one_cycle,base=8,rise=0.25,start_factor=0.5,final_factor=0,three_phases=true,end=4"),
              {4, 8, 4, 2, 0, 0});
}

TEST(CurvesTest, CyclicContinuesForEver) {
  EXPECT_EQ(first(9, "cyclic,up=2,start_factor=0,base=4"), (std::vector<double>{0, 2, 4, 2, 0, 2, 4, 2, 0}));
  EXPECT_EQ(first(9, "cyclic,up=2,start_factor=0,base=4,shape=halved"),
            (std::vector<double>{0, 2, 4, 2, 0, 1, 2, 1, 0}));
  EXPECT_EQ(first(4, "cyclic,up=1,down=2,start_factor=0,base=4,shape=exponential,gamma=0.5"),
            (std::vector<double>{0, 2, 0.5, 0}));
}

TEST(CurvesTest, CosineRestartsTakeTheirPeriodsAndWeights) {
  expect_near(first(8, "cosine_restart,periods=2,4,weights=1,0.5,floor=0"),
              {1, 0.5, 0.5, 0.25 + 0.25 * std::sqrt(0.5), 0.25, 0.25 - 0.25 * std::sqrt(0.5), 0, 0});
  expect_near(first(7, "cosine_restart,periods=2,grow=2,shrink=0.5,floor=0"),
              {1, 0.5, 0.5, 0.25 + 0.25 * std::sqrt(0.5), 0.25, 0.25 - 0.25 * std::sqrt(0.5), 0.25});
  expect_near(first(7, "cosine_restart,periods=2,grow=1,wave=full,floor=0"), {1, 0.5, 0, 0.5, 1, 0.5, 0});
}

/// The value that comes of counting one wave after another.
double after_many_waves(double here, double period, double grow, double shrink) {
  double begin = 0;
  double weight = 1;
  for (; begin + period <= here; period *= grow, weight *= shrink) begin += period;
  return weight * 0.5 * (1 + std::cos(std::numbers::pi * (here - begin) / period));
}

// So many that they are not counted at every step, and a number that would take forever.
TEST(CurvesTest, WavesMayBeMany) {
  for (const auto& [period, grow, shrink] :
       {std::tuple{0.00123, 1.0, 1.0}, {0.00123, 1.0, 0.9999}, {0.00123, 1.0001, 1.0}, {0.0001, 1.01, 0.999}}) {
    const std::string rule = "cosine_restart,floor=0,periods=" + std::to_string(static_cast<int>(period * 1e9)) +
                             "e-9,grow=" + std::to_string(grow) + ",shrink=" + std::to_string(shrink);
    const std::vector<double> values = first(40, rule);
    for (std::size_t step = 0; step < 40; ++step) {
      EXPECT_NEAR(values[step], after_many_waves(static_cast<double>(step), period, grow, shrink), 1e-6)
          << rule << step;
    }
  }
  EXPECT_GE(first(40, "cosine_restart,floor=0,periods=1e-9,grow=1")[39], 0);
}

TEST(CurvesTest, ACompositeGivesABoundaryToItsNextPart) {
  expect_near(first(9,
                    "composite,end=8,lengths=0.25,0.75,curves=(linear,start_factor=0 | "
                    "linear,start_factor=1,end_factor=0)"),
              {0, 0.5, 1, 5. / 6, 4. / 6, 3. / 6, 2. / 6, 1. / 6, 0});
  expect_near(first(9,
                    "composite,end=8,lengths=0.25,0.75,scaling=rescaled,fixed,curves=(constant,factor=0.5 | "
                    "linear,start_factor=1,end_factor=0)"),
              {0.5, 0.5, 6. / 8, 5. / 8, 4. / 8, 3. / 8, 2. / 8, 1. / 8, 0});
  expect_near(first(5,
                    "composite,end=4,lengths=0.5,0.5,scaling=shifted,curves=(exponential,gamma=0.5 | "
                    "exponential,gamma=0.25)"),
              {1, 0.5, 1, 0.25, 0.0625});
}

TEST(CurvesTest, ACompositeHoldsComposites) {
  expect_near(first(4,
                    "composite,end=4,lengths=0.5,0.5,curves=(constant,factor=0.5 | composite,lengths=0.5,0.5,"
                    "curves=(constant,factor=0.25 | constant,factor=0.125))"),
              {0.5, 0.5, 0.25, 0.125});
}

TEST(CurvesTest, BaseTakesThePlaceOfTheValueFromBeginOn) {
  EXPECT_EQ(first(4, "linear,base=8,start_factor=0.5,begin=1,end=3", {.base = 3}), (std::vector<double>{3, 4, 6, 8}));
}

TEST(CurvesTest, MultistepTakesValues) {
  EXPECT_EQ(first(7, "multistep,values=1,4,2,end=6"), (std::vector<double>{1, 1, 4, 4, 2, 2, 2}));
  EXPECT_EQ(first(4, "multistep,values=3,5,milestones=2"), (std::vector<double>{3, 3, 5, 5}));
  EXPECT_EQ(first(4, "multistep,milestones=0,2,2,gamma=0.5"), (std::vector<double>{0.5, 0.5, 0.125, 0.125}));
}

TEST(CurvesTest, RefusesOptionsThatDoNotFit) {
  EXPECT_EQ(error_of("cosine,floor=0.1,final_factor=0.1"), "floor and final_factor cannot be combined");
  EXPECT_EQ(error_of("cosine_restart,periods=3"), "");  // the default of final_factor is 0
  EXPECT_EQ(error_of("cosine_restart,periods=3,4,weights=1,floor=0"), "weights: set one per period");
  EXPECT_EQ(error_of("cosine_restart,floor=0"), "periods: set at least one");
  EXPECT_EQ(error_of("cosine_restart,periods=3,floor=0,grow=0.5"), "grow: must be 0 or at least 1");
  EXPECT_EQ(error_of("cyclic"), "up: set the length of the rise");
  EXPECT_EQ(error_of("inverse_sqrt"), "warmup: set the position of the peak");
  EXPECT_EQ(error_of("one_cycle,rise=1"), "rise: no time remains for the fall");
  EXPECT_EQ(error_of("one_cycle,rise=0.6,three_phases=true"), "rise: the maximum with three_phases is 0.5");
  EXPECT_EQ(error_of("wsd,warmup=30,decay=20"), "warmup and decay: their sum must not exceed end - begin");
  EXPECT_EQ(error_of("multistep,values=1,2,gamma=0.5"), "values and gamma cannot be combined");
  EXPECT_EQ(error_of("multistep,values=1,2,milestones=3,4"), "values: set one more than there are milestones");
  EXPECT_EQ(error_of("multistep,values=1,2,3,milestones=3,3"),
            "milestones: between values each must be larger than the one before");
  EXPECT_EQ(error_of("multistep,values=1,2,milestones=40"),
            "milestones: between values each must be inside the window");
  EXPECT_EQ(error_of("composite"), "curves: set at least one, as in curves=(linear | cosine)");
  EXPECT_EQ(error_of("composite,curves=(linear | cosine),lengths=1"), "lengths: set one per curve; there are 2 curves");
  EXPECT_EQ(error_of("composite,curves=(linear | cosine),lengths=0.5,0.4"), "lengths: their sum must be 1");
  EXPECT_EQ(error_of("composite,curves=(linear | cosine),lengths=1,0"),
            "lengths: a rescaled curve needs a length above 0");
  EXPECT_EQ(error_of("composite,curves=(linear | cosine),lengths=0.5,0.5,scaling=stretched"),
            "scaling: 'stretched' is unknown; choose one of: rescaled, fixed, shifted");
  EXPECT_EQ(error_of("composite,curves=(linear | cosine),lengths=0.5,0.5,scaling=fixed,fixed,fixed"),
            "scaling: set one value, or one per curve");
  EXPECT_EQ(error_of("composite,curves=(plateau),lengths=1"), "'plateau': plateau cannot be a part of another curve");
  EXPECT_EQ(error_of("linear,smooth=true"), "smooth: requires by=epoch");
  EXPECT_EQ(error_of("linear,by=epoch", {.total_steps = 10}), "by: the run has no epochs");
  EXPECT_EQ(error_of("linear,by=samples", {.total_steps = 10}), "by: the run does not count samples");
  EXPECT_EQ(error_of("linear,by=run", {}), "by: the length of the run is unlimited");
  EXPECT_EQ(error_of("plateau,factor=1"), "factor: must be less than 1");
}

}  // namespace curves_test
}  // namespace lockstep::schedule
