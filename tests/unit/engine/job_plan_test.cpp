// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <chrono>

#include "engine/workload.hpp"

namespace lockstep::engine {
namespace job_plan_test {

constexpr std::int64_t kElements = 4096 * 1000;

/// Two float32 parameters in buckets of their own, with two state arrays each.
Workload workload(std::int64_t global_batch) {
  Workload made;
  for (const char* name : {"a", "b"}) {
    made.parameters.push_back({.name = name, .dtype = DType::float32, .shape = {kElements}, .strides = {1}});
    made.states.push_back({.arrays = 2, .element_bytes = 4});
  }
  made.blocks = {{0, 1}};
  made.units = {{0}, {1}};
  made.buckets = plan_buckets(made.parameters, {.bucket_bytes = {1}, .last_bucket_bytes = 0});
  made.parameter_count = 2 * kElements;
  made.parameter_bytes = 8 * kElements;
  made.buffer_bytes = 100;
  made.batch.global_batch_size.value = global_batch;
  made.sample_bytes = 10;
  made.prefetch = 4;
  return made;
}

std::vector<std::int64_t> samples_of(const JobPlan& plan) {
  std::vector<std::int64_t> samples;
  for (const PlannedRank& rank : plan.ranks) samples.push_back(rank.samples);
  return samples;
}

TEST(JobPlanTest, HostsHaveConsecutiveRanks) {
  const JobShape shape{.ranks = 7, .hosts = 3};
  std::vector<int> hosts;
  std::vector<int> positions;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    hosts.push_back(shape.host_of(rank));
    positions.push_back(shape.position_of(rank));
  }
  EXPECT_EQ(hosts, (std::vector<int>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(positions, (std::vector<int>{0, 1, 2, 0, 1, 0, 1}));
  EXPECT_EQ(shape.ranks_of(0), 3);
  EXPECT_EQ(shape.ranks_of(2), 2);
}

TEST(JobPlanTest, FirstMiddleAndLastRankHaveTheirShares) {
  const JobPlan plan = plan_job(workload(10), {.ranks = 4, .hosts = 2});
  EXPECT_EQ(samples_of(plan), (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(plan.ranks[1].rank, 2);
  EXPECT_EQ(plan.ranks[2].host, 1);
  EXPECT_EQ(plan.strategy, "ddp");
  EXPECT_EQ(plan.backend, "hierarchical");
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_NE(plan.warnings[0].find("2 of them have one sample less"), std::string::npos) << plan.warnings[0];
  EXPECT_EQ(plan_job(workload(12), {.ranks = 4, .hosts = 2}).warnings, std::vector<std::string>());
}

TEST(JobPlanTest, RanksWithoutSamplesAreAWarning) {
  const JobPlan plan = plan_job(workload(10), {.ranks = 16, .hosts = 4});
  EXPECT_EQ(samples_of(plan), (std::vector<std::int64_t>{1, 1, 0}));
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_NE(plan.warnings[0].find("leaves 6 of 16 ranks without a sample"), std::string::npos) << plan.warnings[0];
}

TEST(JobPlanTest, LanesAreDealtToRanks) {
  Workload lanes = workload(12);
  lanes.batch.lanes.value = 6;
  const JobPlan plan = plan_job(lanes, {.ranks = 4, .hosts = 1});
  EXPECT_EQ(samples_of(plan), (std::vector<std::int64_t>{4, 2, 2}));
  EXPECT_EQ(plan.ranks[0].micro_batches, 2);
  EXPECT_EQ(plan.ranks[0].micro_batch_size, 2);
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_NE(plan.warnings[0].find("train.lanes = 6 is not a multiple of 4 ranks: 2 of them"), std::string::npos)
      << plan.warnings[0];
  EXPECT_NE(plan_job(lanes, {.ranks = 8, .hosts = 1}).warnings.at(0).find("2 of 8 ranks without a lane"),
            std::string::npos);
  lanes.batch.lanes.value = 5;
  EXPECT_NE(plan_job(lanes, {.ranks = 5, .hosts = 1}).warnings.at(0).find("is not a multiple of train.lanes = 5"),
            std::string::npos);
}

TEST(JobPlanTest, MicroBatchesCoverTheShare) {
  Workload parts = workload(20);
  parts.batch.micro_batch.value = 4;
  const JobPlan plan = plan_job(parts, {.ranks = 2, .hosts = 1});
  EXPECT_EQ(plan.ranks[0].micro_batches, 3);
  EXPECT_EQ(plan.ranks[0].micro_batch_size, 4);
  EXPECT_EQ(plan.ranks[0].held.batches, (5 + 3) * 4 * 10);  // five in advance, three in use
}

TEST(JobPlanTest, RanksOfAHostShareParametersAndState) {
  const JobPlan plan = plan_job(workload(8), {.ranks = 4, .hosts = 2});
  const HeldBytes& held = plan.ranks[0].held;
  EXPECT_EQ(held.sharers, 2);
  EXPECT_EQ(held.parameters, 8 * kElements);
  EXPECT_EQ(held.state, 16 * kElements);
  EXPECT_EQ(held.gradients, 8 * kElements);
  EXPECT_EQ(held.buffers, 100);
  EXPECT_EQ(plan.ranks[0].updated, kElements);
  EXPECT_EQ(held.per_rank(), 12 * kElements + 8 * kElements + 100 + held.batches);
  EXPECT_EQ(plan.host_bytes, 24 * kElements + 2 * (8 * kElements + 100 + held.batches));

  const JobPlan spread = plan_job(workload(8), {.ranks = 4, .hosts = 4});  // messages: no shared memory
  EXPECT_EQ(spread.backend, "mpi");
  EXPECT_EQ(spread.ranks[0].held.sharers, 1);
  EXPECT_EQ(spread.ranks[0].updated, 2 * kElements);
}

TEST(JobPlanTest, StagesDivideMoreAndMore) {
  const auto held_at = [](int stage, bool is_within_hosts = false) {
    Workload sharded = workload(8);
    sharded.strategy = "sharded";
    sharded.stage = stage;
    sharded.is_within_hosts = is_within_hosts;
    return plan_job(sharded, {.ranks = 4, .hosts = 2}).ranks[0].held;
  };
  // A slice has whole pieces of 4096 elements, and room for alignment.
  const std::int64_t slice = held_at(3).parameters;
  EXPECT_GE(slice, 8 * kElements / 4);
  EXPECT_LE(slice, 8 * kElements / 4 + 4 * 2 * 4096);
  EXPECT_EQ(held_at(3).state, 2 * slice);
  EXPECT_EQ(held_at(3).gradients, slice + 2 * slice);  // and one whole unit that is reduced
  EXPECT_EQ(held_at(2).parameters, 4 * slice);
  EXPECT_EQ(held_at(2).gradients, slice + 2 * slice);
  EXPECT_EQ(held_at(1).gradients, 8 * kElements);
  EXPECT_EQ(held_at(1).state, 2 * slice);
  EXPECT_GE(held_at(3, true).parameters, 8 * kElements / 2);
  EXPECT_LE(held_at(3, true).parameters, 8 * kElements / 2 + 4 * 2 * 4096);
}

TEST(JobPlanTest, TheRanksOfAHostUpdateAllElementsTogether) {
  for (const bool is_whole : {false, true}) {
    Workload made = workload(60);
    made.owns_whole_parameters = is_whole;
    for (const int ranks : {1, 2, 3}) {  // the plan lists all of them
      const JobPlan plan = plan_job(made, {.ranks = ranks, .hosts = 1});
      std::int64_t updated = 0;
      for (const PlannedRank& rank : plan.ranks) updated += rank.updated;
      EXPECT_EQ(updated, 2 * kElements) << ranks;
    }
    const std::int64_t last = plan_job(made, {.ranks = 3, .hosts = 1}).ranks.back().updated;
    EXPECT_EQ(last == 0, is_whole) << last;  // two parameters have two owners
  }
}

TEST(JobPlanTest, ACheckpointHasParametersBuffersAndState) {
  const JobPlan plan = plan_job(workload(8), {.ranks = 4, .hosts = 2});
  EXPECT_EQ(plan.model_bytes, 8 * kElements + 100);
  EXPECT_EQ(plan.state_bytes, 16 * kElements);
  EXPECT_EQ(plan.writers, 1);
  EXPECT_EQ(plan.ranks[0].checkpoint_bytes, plan.checkpoint_bytes());
  EXPECT_EQ(plan.ranks[1].checkpoint_bytes, 0);
  EXPECT_EQ(plan.host_checkpoint_bytes, plan.checkpoint_bytes());

  Workload shards = workload(8);
  shards.checkpoint_layout = "shards";
  shards.has_average = true;
  const JobPlan divided = plan_job(shards, {.ranks = 4, .hosts = 2});
  EXPECT_EQ(divided.writers, 2);
  EXPECT_EQ(divided.state_bytes, 24 * kElements);
  EXPECT_EQ(divided.ranks[0].checkpoint_bytes, divided.checkpoint_bytes() / 2);
  EXPECT_EQ(divided.ranks[1].checkpoint_bytes, divided.checkpoint_bytes() / 2);  // rank 2, the first of its host
  EXPECT_EQ(divided.ranks[2].checkpoint_bytes, 0);
  EXPECT_EQ(divided.host_checkpoint_bytes, divided.checkpoint_bytes() / 2);
}

TEST(JobPlanTest, BucketsAboveTheCacheAreAWarning) {
  const JobPlan plan = plan_job(workload(8), {.ranks = 2, .hosts = 1}, 4 * kElements - 1);
  EXPECT_EQ(plan.bucket_bytes, (std::vector<std::int64_t>{4 * kElements, 4 * kElements}));
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_NE(plan.warnings[0].find("last level of cache"), std::string::npos) << plan.warnings[0];
  EXPECT_TRUE(plan_job(workload(8), {.ranks = 2, .hosts = 1}, 4 * kElements).warnings.empty());
}

TEST(JobPlanTest, SettingsThatARunRefusesAreWarnings) {
  const auto warning_of = [](Workload made, const JobShape& shape) {
    const JobPlan plan = plan_job(made, shape);
    return plan.warnings.empty() ? std::string() : plan.warnings[0];
  };
  Workload made = workload(30);
  made.strategy = "single";
  EXPECT_NE(warning_of(made, {.ranks = 2, .hosts = 1}).find("single requires one rank"), std::string::npos);
  made = workload(30);
  made.backend = "shm";
  EXPECT_NE(warning_of(made, {.ranks = 2, .hosts = 2}).find("shm requires one host"), std::string::npos);
  made = workload(30);
  made.strategy = "sharded";
  made.stage = 2;
  made.is_within_hosts = true;
  EXPECT_NE(warning_of(made, {.ranks = 3, .hosts = 2}).find("same number of ranks on every host"), std::string::npos);
  EXPECT_THROW(plan_job(made, {.ranks = 2, .hosts = 3}), ConfigError);
}

TEST(JobPlanTest, TenThousandRanksTakeLessThanASecond) {
  for (const int stage : {0, 1, 3}) {
    Workload large = workload(10000);
    large.strategy = stage > 0 ? "sharded" : "ddp";
    large.stage = stage;
    const auto start = std::chrono::steady_clock::now();
    const JobPlan plan = plan_job(large, {.ranks = 10000, .hosts = 625});
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1);
    EXPECT_EQ(samples_of(plan), (std::vector<std::int64_t>{1, 1, 1}));
  }
}

}  // namespace job_plan_test
}  // namespace lockstep::engine
