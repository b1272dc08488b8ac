// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/ddp_report.hpp>

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace ddp_report_test {

/// A step of 64 ms with two buckets: 41 ms of computing, 10 of updating, 5 of transfer; the rest waits.
StepTimeline slow_step() {
  return {.backward_end = 0.040,
          .meeting_begin = 0.060,
          .meeting_end = 0.064,
          .end = 0.064,
          .meetings = 0.004,
          .buckets = {{.ready = 0.010,
                       .launched = 0.011,
                       .wait_begin = 0.040,
                       .wait_end = 0.042,
                       .visit_begin = 0.044,
                       .visit_end = 0.050,
                       .transfer = 0.002,
                       .update = 0.004},
                      {.ready = 0.040,
                       .launched = 0.040,
                       .wait_begin = 0.042,
                       .wait_end = 0.044,
                       .visit_begin = 0.050,
                       .visit_end = 0.060,
                       .transfer = 0.003,
                       .update = 0.006}}};
}

/// The same of a rank whose backward takes half the time: it waits 20 ms longer.
StepTimeline fast_step() {
  StepTimeline step = slow_step();
  step.backward_end = 0.020;
  step.buckets[0].wait_begin = 0.020;
  return step;
}

TEST(DdpReportTest, TheSecondsOfAStepAddUp) {
  const StepTimeline step = slow_step();
  EXPECT_DOUBLE_EQ(step.update(), 0.010);
  EXPECT_DOUBLE_EQ(step.transfer(), 0.005);
  EXPECT_DOUBLE_EQ(step.wait(), 0.008);
  EXPECT_DOUBLE_EQ(step.compute(), 0.041);
  EXPECT_DOUBLE_EQ(step.exposed(), 0.013);
}

TEST(DdpReportTest, TheSlowestRankIsTheOneThatWaitsLeast) {
  EXPECT_EQ(slowest_rank({.steps = 1, .ranks = {fast_step(), slow_step(), fast_step()}}), 1u);
  EXPECT_EQ(slowest_rank({.steps = 1, .ranks = {slow_step(), slow_step()}}), 0u);
}

TEST(DdpReportTest, TheSentenceNamesTheLargestPart) {
  DdpReport report{.steps = 9, .ranks = {fast_step(), slow_step()}};
  EXPECT_EQ(bound_sentence(report),
            "compute-bound; communication exposed 20 % (a step of 64.00 ms: compute 41.00, update 10.00, wait 8.00, "
            "transfer 5.00)");
  report.ranks[1].buckets[0].update = 0.036;
  EXPECT_EQ(bound_sentence(report),
            "update-bound; communication exposed 20 % (a step of 64.00 ms: compute 9.00, update 42.00, wait 8.00, "
            "transfer 5.00)");
  report.ranks = {fast_step(), fast_step()};
  EXPECT_EQ(bound_sentence(report),
            "communication-bound; communication exposed 52 % (a step of 64.00 ms: compute 21.00, update 10.00, wait "
            "28.00, transfer 5.00)");
}

TEST(DdpReportTest, WithoutCommunicationOrStepsThereIsNothingToShow) {
  const DdpReport alone{.steps = 9, .ranks = {slow_step()}};
  EXPECT_EQ(bound_sentence(alone), "one rank: no communication");
  EXPECT_EQ(timeline_text(alone), "");
  const DdpReport hasty{.steps = 0, .ranks = std::vector<StepTimeline>(2)};
  EXPECT_EQ(bound_sentence(hasty), "too few steps to determine what limits them");
  EXPECT_EQ(timeline_text(hasty), "");
}

TEST(DdpReportTest, TheTextShowsTheSlowestRanksStep) {
  const DdpReport report{.steps = 9, .ranks = {fast_step(), slow_step()}};
  EXPECT_EQ(timeline_text(report),
            "rank 1, the slowest of 2: a median step of the last 9, in ms\nbucket       ready  launched      wait  "
            "transfer    update\n0            10.00     11.00      2.00      2.00      4.00\n1            40.00     "
            "40.00      2.00      3.00      6.00\nstep    |cccccccccccccccccccccccccccccccccccccccc                    "
            "wwww|\n0       |           .............................ww  ttuuuu              |\n1       |              "
            "                          ..ww      ttt uuuuuu    |\nc compute  . in progress  w wait  t transfer  u "
            "update; a column is 1.00 ms\ncommunication exposed by rank: 52 %, 20 %");
}

TEST(DdpReportTest, OfManyBucketsTheMiddleIsLeftOut) {
  DdpReport report{.steps = 9, .ranks = {slow_step(), fast_step()}};
  report.ranks[0].buckets.resize(16);
  EXPECT_EQ(timeline_text(report).find("more)"), std::string::npos);
  report.ranks[0].buckets.resize(19);
  const std::string text = timeline_text(report);
  EXPECT_NE(text.find("\n(3 more)\n11 "), std::string::npos) << text;
  EXPECT_NE(text.find("\n7 "), std::string::npos) << text;
  EXPECT_EQ(text.find("\n8 "), std::string::npos) << text;
  EXPECT_NE(text.find("\n18 "), std::string::npos) << text;
}

}  // namespace ddp_report_test
}  // namespace lockstep::parallel
