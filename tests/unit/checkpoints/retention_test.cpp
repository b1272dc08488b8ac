// SPDX-License-Identifier: BSD-3-Clause
// Which checkpoints stay, and why.
#include <chrono>
#include <filesystem>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace retention_test {

using Steps = std::vector<std::int64_t>;

class RetentionTest : public ::testing::Test {
 protected:
  RetentionTest() {
    for (std::int64_t step = 10; step <= 60; step += 10) write(directory_.path(), step, sample(step));
  }

  std::string reason_for(std::int64_t step, const RetentionRule& rule) const {
    for (const RetentionDecision& verdict : plan_retention(directory_.path(), rule)) {
      if (verdict.step == step) return (verdict.is_kept ? "kept: " : "goes: ") + verdict.reason;
    }
    return "";
  }

  TemporaryFolder directory_;
};

TEST_F(RetentionTest, TheNewestStay) {
  retain(directory_.path(), {.keep_last = 2});
  EXPECT_EQ(list(directory_.path()), (Steps{50, 60}));
}

TEST_F(RetentionTest, MultiplesStayForEver) {
  retain(directory_.path(), {.keep_last = 1, .keep_every = 20});
  EXPECT_EQ(list(directory_.path()), (Steps{20, 40, 60}));
}

TEST_F(RetentionTest, AskedForAndPinnedOnesStay) {
  put_bytes(directory_ / "step-000000000030.pin", "");
  retain(directory_.path(), {.keep_last = 1, .keep_steps = {10}});
  EXPECT_EQ(list(directory_.path()), (Steps{10, 30, 60}));
}

TEST_F(RetentionTest, YoungOnesStay) {
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const int step : {10, 20, 30}) {
    std::filesystem::last_write_time(directory_ / ("step-0000000000" + std::to_string(step)),
                                     now - std::chrono::minutes(step == 20 ? 80 : 100));
  }
  const RetentionRule rule{.keep_last = 1, .keep_age_hours = 1.5};
  EXPECT_EQ(reason_for(20, rule), "kept: it is younger than 1.5 hours");
  EXPECT_EQ(reason_for(30, rule), "goes: no rule keeps it");
  retain(directory_.path(), rule);
  EXPECT_EQ(list(directory_.path()), (Steps{20, 40, 50, 60}));
}

TEST_F(RetentionTest, TheBestStay) {
  retain(directory_.path(), {.keep_last = 1, .best_steps = {20, 40}});
  EXPECT_EQ(list(directory_.path()), (Steps{20, 40, 60}));
}

TEST_F(RetentionTest, WhatARunWentOnFromStaysUntilThereAreTwoNewerOnes) {
  EXPECT_EQ(reason_for(40, {.keep_last = 1, .origin_step = 40}), "goes: no rule keeps it");
  EXPECT_EQ(reason_for(50, {.keep_last = 1, .origin_step = 50}),
            "kept: the run was resumed from it, and fewer than two newer ones exist");
  put_bytes(directory_ / "step-000000000060/state.h5", "torn");  // does not count
  EXPECT_EQ(reason_for(40, {.keep_last = 1, .origin_step = 40}),
            "kept: the run was resumed from it, and fewer than two newer ones exist");
}

TEST_F(RetentionTest, EachVerdictHasItsReason) {
  const RetentionRule rule{.keep_last = 2, .keep_every = 20, .keep_steps = {10}};
  put_bytes(directory_ / "step-000000000030.pin", "");
  EXPECT_EQ(reason_for(10, rule), "kept: its step is listed");
  EXPECT_EQ(reason_for(20, rule), "kept: its step is a multiple of 20");
  EXPECT_EQ(reason_for(30, rule), "kept: it is pinned");
  EXPECT_EQ(reason_for(50, rule), "kept: it is one of the 2 newest");
  EXPECT_EQ(reason_for(30, {.keep_last = 2, .best_steps = {40}}), "kept: it is pinned");
  EXPECT_EQ(reason_for(20, {.keep_last = 2, .best_steps = {20}}), "kept: it is the best");
  EXPECT_EQ(reason_for(20, {.keep_last = 2, .best_steps = {20, 40}}), "kept: it is one of the best");
  EXPECT_EQ(reason_for(50, {.keep_last = 1}), "goes: no rule keeps it");
  EXPECT_EQ(reason_for(60, {.keep_last = 1}), "kept: it is the newest");
}

TEST_F(RetentionTest, AnUnfinishedOneNeitherCountsNorGoes) {
  put_bytes(directory_ / "step-000000000060/state.h5", "torn");
  EXPECT_EQ(reason_for(60, {.keep_last = 1}).rfind("kept: it is not a complete checkpoint and is kept: ", 0), 0U);
  retain(directory_.path(), {.keep_last = 2});
  EXPECT_EQ(list(directory_.path()), (Steps{40, 50, 60}));
}

}  // namespace retention_test
}  // namespace lockstep::checkpoints
