// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/ddp_report.hpp>

#include <gtest/gtest.h>

#include "parallel/store/step_recorder.hpp"

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

/// Two micro_batches with a pause of 5 s; the update begins with the last wait, and contains a wait for others.
TEST(DdpReportTest, TheStepOfAGpuFollowsFromItsPoints) {
  using enum StepPoint;
  const StepTimeline step = timeline_of({{begin, 0, 0},
                                         {meeting_begin, 0, 1},
                                         {meeting_end, 0, 2},
                                         {pause, 0, 4},
                                         {begin, 0, 9},
                                         {ready, 0, 10},
                                         {launched, 0, 10.5},
                                         {launched, 1, 11},
                                         {backward_end, 0, 12},
                                         {wait_begin, 0, 12},
                                         {wait_end, 0, 13},
                                         {wait_begin, 1, 13},
                                         {wait_end, 1, 15},
                                         {meeting_begin, 0, 16},
                                         {meeting_end, 0, 16.5},
                                         {pause, 0, 19}},
                                        2);
  EXPECT_EQ(step.end, 14);
  EXPECT_EQ(step.backward_end, 7);
  EXPECT_EQ(step.meetings, 1.5);
  EXPECT_EQ(step.meeting_begin, 11);
  EXPECT_EQ(step.meeting_end, 11.5);
  EXPECT_EQ(step.undivided_update, 3.5);
  EXPECT_EQ(step.update(), 3.5);
  EXPECT_EQ(step.wait(), 4.5);
  EXPECT_EQ(step.compute(), 6);
  ASSERT_EQ(step.buckets.size(), 2U);
  EXPECT_EQ(step.buckets[0].ready, 5);
  EXPECT_EQ(step.buckets[0].launched, 5.5);
  EXPECT_EQ(step.buckets[1].ready, 6) << "it holds no gradients";
  EXPECT_EQ(step.buckets[1].wait_begin, 8);
  EXPECT_EQ(step.buckets[1].wait_end, 10);
}

TEST(DdpReportTest, WhatIsNotMeasuredOnAGpuIsStated) {
  StepTimeline step = slow_step();
  for (BucketTimes& bucket : step.buckets) bucket.update = bucket.transfer = 0;
  step.undivided_update = 0.016;
  step.meetings = 0.003;
  const DdpReport report{.steps = 9, .is_of_gpu = true, .ranks = {step, step}};
  EXPECT_EQ(bound_sentence(report),
            "compute-bound; communication exposed 11 % (a step of 64.00 ms on the GPU: compute 41.00, update 16.00, "
            "wait 7.00)");
  const std::string text = timeline_text(report);
  EXPECT_NE(text.find("\n0            10.00     11.00      2.00         -         -\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ntimes of the GPU; not measured: the update of each bucket, "), std::string::npos) << text;
}

}  // namespace ddp_report_test
}  // namespace lockstep::parallel
