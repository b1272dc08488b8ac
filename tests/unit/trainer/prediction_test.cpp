// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/prediction.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::trainer {
namespace prediction_test {

constexpr double kPiece = 256 << 10;

/// Links on which every message takes 1 s and every byte 2 s, 0.5 s and 0.25 s.
Network simple_network() {
  return {.memory = {.latency_s = 1, .bytes_per_s = 0.5},
          .inside = {.latency_s = 1, .bytes_per_s = 2},
          .between = {.latency_s = 1, .bytes_per_s = 4}};
}

TEST(PredictionTest, ALinkTakesItsLatencyAndItsBytes) {
  const LinkSpeed link{.latency_s = 0.25, .bytes_per_s = 8};
  EXPECT_EQ(link.seconds(3, 16), 3 * 0.25 + 2);
}

TEST(PredictionTest, OneRankDoesNotCommunicate) {
  const JobForm form{.bucket_bytes = {1000}};
  EXPECT_EQ(seconds_of(bucket_traffic(form, 1000), simple_network()), 0);
  const PredictedStep step = predict_step(form, {.step_s = 10, .update_s = 4}, simple_network());
  EXPECT_EQ(step.compute_s, 6);
  EXPECT_EQ(step.update_s, 4);
  EXPECT_EQ(step.seconds(), 10);
}

TEST(PredictionTest, RanksOfAHostReadTheSlicesOfTheOthers) {
  const JobTraffic traffic = bucket_traffic({.ranks = 4, .backend = "shm"}, 1000);
  EXPECT_EQ(traffic.memory.bytes, 750);
  EXPECT_EQ(traffic.memory.messages, 4);  // there and back in a tree of two levels
  EXPECT_EQ(traffic.inside.bytes, 0);
  EXPECT_EQ(traffic.between.bytes, 0);
}

TEST(PredictionTest, AChainOfHostsSendsEveryByteTwice) {
  const JobForm form{.ranks = 8, .hosts = 4, .backend = "hierarchical"};
  const double bytes = 10 * kPiece;
  const JobTraffic traffic = bucket_traffic(form, bytes);
  EXPECT_EQ(traffic.memory.bytes, bytes / 2);
  EXPECT_EQ(traffic.between.messages, 6);
  EXPECT_EQ(traffic.between.bytes, 2 * bytes + 6 * 2 * kPiece);  // two ranks of a host carry pieces
  EXPECT_EQ(bucket_traffic(form, 100).between.bytes, 200 + 6 * 100);
}

TEST(PredictionTest, MessagesHalveAndDouble) {
  const JobTraffic traffic = bucket_traffic({.ranks = 8, .hosts = 8, .backend = "mpi"}, 800);
  EXPECT_EQ(traffic.between.messages, 6);
  EXPECT_EQ(traffic.between.bytes, 1400);
  EXPECT_EQ(traffic.inside.bytes, 0);
}

/// The table of docs/distributed.md, for 1000 bytes of parameters, 3 micro-batches, 8 ranks on 2 hosts.
TEST(PredictionTest, ShardsSendTheBytesOfTheTable) {
  JobForm form{.ranks = 8, .hosts = 2, .backend = "hierarchical", .parameter_bytes = 1000, .micro_batches = 3};
  const auto bytes_of = [&form](int stage, bool is_within_hosts) {
    form.stage = stage;
    form.is_within_hosts = is_within_hosts;
    const JobTraffic traffic = sharded_traffic(form);
    return std::pair(traffic.memory.bytes, traffic.between.bytes);
  };
  EXPECT_EQ(bytes_of(1, false), std::pair(3 * 875.0, 3 * 875.0));
  EXPECT_EQ(bytes_of(1, true), std::pair(2 * 875.0 + 750, 2 * 875.0));
  EXPECT_EQ(bytes_of(2, false), std::pair(4 * 875.0, 4 * 875.0));
  EXPECT_EQ(bytes_of(2, true), std::pair(4 * 750.0, 2 * 500.0));
  EXPECT_EQ(bytes_of(3, false), std::pair(9 * 875.0, 9 * 875.0));
  EXPECT_EQ(bytes_of(3, true), std::pair(9 * 750.0, 2 * 500.0));
}

TEST(PredictionTest, OnlyTheEndOfCommunicationIsExposed) {
  EXPECT_EQ(exposed_seconds({2, 4, 10}, {1, 3, 2}, 10), 2);  // the last bucket waits for nothing
  EXPECT_EQ(exposed_seconds({2, 4, 10}, {1, 9, 2}, 10), 5);  // the second one ends at 13
  EXPECT_EQ(exposed_seconds({2}, {1}, 10), 0);
  EXPECT_EQ(exposed_seconds({}, {}, 10), 0);
}

TEST(PredictionTest, AStepIsTheSumOfItsParts) {
  const JobForm form{.ranks = 2, .backend = "shm", .bucket_bytes = {8, 4}, .updated_share = 0.5};
  const LoneCosts costs{.step_s = 100, .update_s = 20};
  const PredictedStep step = predict_step(form, costs, simple_network());
  EXPECT_EQ(step.compute_s, 80);
  EXPECT_EQ(step.update_s, 10);
  // Each bucket has two messages, and half of its bytes; two more messages agree on the loss.
  EXPECT_DOUBLE_EQ(step.inside_s, (2 + 4 * 2) + (2 + 2 * 2) + 2);
  EXPECT_EQ(step.between_s, 0);
  // The first bucket is ready at 40, and ends at 50: before the second one is ready.
  EXPECT_DOUBLE_EQ(predict_step(form, costs, simple_network(), {0.5, 1}).inside_s, 6 + 2);
}

TEST(PredictionTest, TheErrorIsThatOfTheWorstCheck) {
  const std::vector<Check> checks = {{.ranks = 1, .predicted_s = 10, .measured_s = 8, .spread = 0.125},
                                     {.ranks = 2, .predicted_s = 10, .measured_s = 15, .spread = 0.25}};
  EXPECT_EQ(checks[0].error(), 0.25);
  EXPECT_EQ(checks[1].error(), 0.5);
  EXPECT_EQ(error_of(checks, 0.0625), 0.75);
  EXPECT_EQ(error_of(checks, 1), 1.5);
}

TEST(PredictionTest, TheSpreadComparesSlowAndFastSteps) {
  EXPECT_EQ(spread_of({4, 4, 4, 4, 4, 4}), 0);
  EXPECT_EQ(spread_of({9, 1, 2, 3, 4, 4, 4, 6, 7, 8}), 1.75);  // (9 - 2) / 4
  EXPECT_EQ(spread_of({}), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(quantile_of({3, 1, 2}, 1), 3);
}

TEST(PredictionTest, TheIntervalsAreThoseOfYoungAndDaly) {
  EXPECT_EQ(young_interval(2, 100), 20);
  // x = 2 / 200 = 0.01: 20 (1 + 0.1 / 3 + 0.01 / 9) - 2
  EXPECT_NEAR(daly_interval(2, 100), 18.688888888888889, 1e-12);
  EXPECT_EQ(daly_interval(200, 100), 100);
}

/// Daly's interval is the best one by the formula of the expected time, but for higher orders.
TEST(PredictionTest, NoIntervalIsMuchBetterThanDalys) {
  const FailureSettings settings{.mtbf_hours = 10, .save_s = 30, .restart_s = 120};
  const FailurePlan plan = plan_failures(settings, 5, 1e6);
  EXPECT_EQ(plan.job_mtbf_s, 7200);
  EXPECT_NEAR(plan.young_s, std::sqrt(2.0 * 30 * 7200), 1e-9);
  const auto time_of = [&](double interval) {
    return 7200 * std::exp(120.0 / 7200) * (std::exp((interval + 30) / 7200) - 1) * 1e6 / interval;
  };
  EXPECT_NEAR(plan.wall_s, time_of(plan.daly_s), 1e-6 * plan.wall_s);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    EXPECT_GT(time_of(factor * plan.daly_s), plan.wall_s) << factor;
  }
  EXPECT_NEAR(plan.failures, plan.wall_s / 7200, 1e-9);
  EXPECT_NEAR(plan.effective * plan.wall_s, 1e6, 1e-6);
}

TEST(PredictionTest, AJobWithRareFailuresLosesAlmostNothing) {
  const FailurePlan plan = plan_failures({.mtbf_hours = 1e6, .save_s = 1}, 1, 3600);
  EXPECT_NEAR(plan.effective, 1, 1e-3);
  EXPECT_NEAR(plan.failures, 1e-6, 1e-8);
}

}  // namespace prediction_test
}  // namespace lockstep::trainer
