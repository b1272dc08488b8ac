// SPDX-License-Identifier: BSD-3-Clause
// What the stored traces of tests/reference do not show.
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace lockstep::optim {
namespace grad_scaler_test {

TEST(GradScalerTest, ParsesDynamicAndNumbers) {
  EXPECT_TRUE(GradScalerOptions::parse("dynamic", "default").is_dynamic);
  EXPECT_EQ(GradScalerOptions::parse("dynamic", "default").init_scale, 65536);
  EXPECT_FALSE(GradScalerOptions::parse("512", "default").is_dynamic);
  EXPECT_EQ(GradScalerOptions::parse("512", "default").init_scale, 512);
  EXPECT_EQ(GradScalerOptions::parse("0.5", "default").init_scale, 0.5);
  for (const char* bad : {"static", "0", "-1", "", "inf"}) {
    try {
      GradScalerOptions::parse(bad, "train.loss_scale (a.ini:3)");
      ADD_FAILURE() << bad;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), "train.loss_scale (a.ini:3): '" + std::string(bad) +
                                  "' is not a loss scale; use dynamic or a number > 0");
    }
  }
}

TEST(GradScalerTest, RefusesWhatCannotWork) {
  for (const GradScalerOptions& bad :
       {GradScalerOptions{.init_scale = 0}, GradScalerOptions{.init_scale = 1e39},
        GradScalerOptions{.growth_factor = 1}, GradScalerOptions{.backoff_factor = 1},
        GradScalerOptions{.backoff_factor = 0}, GradScalerOptions{.growth_interval = 0}}) {
    EXPECT_THROW(GradScaler{bad}, ConfigError);
  }
}

TEST(GradScalerTest, AStaticScaleStaysAndCounts) {
  GradScaler scaler({.init_scale = 128, .growth_interval = 1, .is_dynamic = false});
  for (const bool is_finite : {true, false, false, true, false}) scaler.update(is_finite);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  EXPECT_EQ(scaler.state().skipped_steps, 3);
  EXPECT_EQ(scaler.state().skipped_in_a_row, 1);
}

TEST(GradScalerTest, TheScaleStaysPositive) {
  GradScaler scaler({.backoff_factor = 1e-9});
  for (int i = 0; i < 20; ++i) scaler.update(false);
  EXPECT_GT(scaler.scale(), 0);
}

TEST(GradScalerTest, ContinuesFromAState) {
  GradScaler whole({.init_scale = 8, .growth_interval = 3});
  GradScaler before({.init_scale = 8, .growth_interval = 3});
  for (const bool is_finite : {true, false, true, true}) {
    whole.update(is_finite);
    before.update(is_finite);
  }
  GradScaler after({.growth_interval = 3});
  EXPECT_NE(after.scale(), before.scale());
  after.load_state(before.state());
  for (const bool is_finite : {true, true, false, false, true}) {
    whole.update(is_finite);
    after.update(is_finite);
    EXPECT_EQ(after.scale(), whole.scale());
    EXPECT_EQ(after.state().growth_tracker, whole.state().growth_tracker);
    EXPECT_EQ(after.state().skipped_steps, whole.state().skipped_steps);
  }
  GradScaler fixed(GradScalerOptions::parse("4", "default"));
  fixed.load_state(before.state());
  EXPECT_EQ(fixed.scale(), 4);
  EXPECT_EQ(fixed.state().skipped_steps, 1);
}

TEST(GradScalerTest, RefusesAStateThatIsNone) {
  GradScaler scaler({});
  using State = GradScaler::State;
  for (const State& bad : {State{}, State{.scale = -1}, State{.scale = std::numeric_limits<double>::quiet_NaN()},
                           State{.scale = 1e300}, State{.scale = 1, .growth_tracker = -1},
                           State{.scale = 1, .skipped_steps = -1}, State{.scale = 1, .skipped_in_a_row = -1}}) {
    EXPECT_THROW(scaler.load_state(bad), std::invalid_argument);
  }
  EXPECT_EQ(scaler.scale(), 65536);
}

}  // namespace grad_scaler_test
}  // namespace lockstep::optim
