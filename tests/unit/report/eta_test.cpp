// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "report/console/progress.hpp"

namespace lockstep::report {
namespace eta_test {

TEST(EtaTest, KnowsNothingBeforeTheFirstStep) { EXPECT_FALSE(Eta().seconds_left(10).has_value()); }

TEST(EtaTest, UsesTheMedian) {
  Eta eta;
  eta.add(100);  // a slow first step
  EXPECT_EQ(eta.seconds_left(3), 300);
  eta.add(2);
  eta.add(1);
  EXPECT_EQ(eta.seconds_left(3), 6);
  eta.add(4);
  EXPECT_EQ(eta.median_step_seconds(), 3);  // median of 1, 2, 4, 100
  EXPECT_EQ(eta.seconds_left(0), 0);
  EXPECT_EQ(eta.seconds_left(-2), 0);
}

TEST(EtaTest, ForgetsWhatLiesBehindItsWindow) {
  Eta eta(3);
  for (const double seconds : {9.0, 9.0, 9.0, 1.0}) eta.add(seconds);
  EXPECT_EQ(eta.median_step_seconds(), 9);
  eta.add(1);
  EXPECT_EQ(eta.median_step_seconds(), 1);
  eta.add(2);
  eta.add(2);
  EXPECT_EQ(eta.median_step_seconds(), 2);
}

}  // namespace eta_test
}  // namespace lockstep::report
