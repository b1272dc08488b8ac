// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/bucket_plan.hpp"

#include <lockstep/parallel/ddp_options.hpp>

#include <gtest/gtest.h>

#include <numeric>

#include "parallel/store/ownership.hpp"

namespace lockstep::parallel {
namespace bucket_plan_test {

using Lists = std::vector<std::vector<std::size_t>>;
using Bytes = std::vector<std::int64_t>;

ParameterSpec spec(std::int64_t count, DType dtype = DType::float32) {
  return {.name = "p", .dtype = dtype, .shape = {count}, .strides = {1}};
}

/// fp32 x 50 and fp64 x 25 in turns: 200 bytes each.
std::vector<ParameterSpec> alternating() {
  std::vector<ParameterSpec> specs;
  for (int i = 0; i < 3; ++i) {
    specs.push_back(spec(50));
    specs.push_back(spec(25, DType::float64));
  }
  return specs;
}

/// Parameter indices of the buckets in launch order.
Lists indices(const std::vector<Bucket>& buckets) {
  Lists lists;
  for (const Bucket& bucket : buckets) {
    auto& list = lists.emplace_back();
    for (const Slot& slot : bucket.slots) list.push_back(slot.parameter);
  }
  return lists;
}

// Case 1.
TEST(AssignBucketsTest, ABucketClosesWhenItReachesItsLimit) {
  const auto result = assign_buckets({spec(100), spec(200), spec(100), spec(50)}, Bytes{400});
  EXPECT_EQ(result.buckets, (Lists{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(result.limits, (Bytes{400, 400, 400, 400}));
}

// Case 2.
TEST(AssignBucketsTest, EachDtypeFillsBucketsOfItsOwn) {
  const auto result = assign_buckets(alternating(), Bytes{400});
  EXPECT_EQ(result.buckets, (Lists{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(result.limits, (Bytes{400, 400, 400, 400}));
}

// Case 3.
TEST(AssignBucketsTest, LimitsAreTakenInTurnAndTheLastRepeats) {
  const auto result = assign_buckets(std::vector<ParameterSpec>(4, spec(10)), Bytes{40, 80});
  EXPECT_EQ(result.buckets, (Lists{{0}, {1, 2}, {3}}));
  EXPECT_EQ(result.limits, (Bytes{40, 80, 80}));
}

// Case 4.
TEST(AssignBucketsTest, EachDtypeHasItsOwnPlaceInTheLimits) {
  const auto result = assign_buckets(alternating(), Bytes{200, 400});
  EXPECT_EQ(result.buckets, (Lists{{0}, {1}, {2, 4}, {3, 5}}));
  EXPECT_EQ(result.limits, (Bytes{200, 200, 400, 400}));
}

// Case 5, in this design: a sparse gradient makes a bucket by itself, without a limit.
TEST(AssignBucketsTest, ASparseGradientIsAloneInItsBucket) {
  std::vector<ParameterSpec> specs = {spec(10), spec(10), spec(10)};
  specs[1].is_sparse = true;
  const auto result = assign_buckets(specs, Bytes{80});
  EXPECT_EQ(result.buckets, (Lists{{0, 2}, {1}}));
  EXPECT_EQ(result.limits, (Bytes{80, 0}));
}

// Case 6.
TEST(AssignBucketsTest, WithAnOrderBucketsStayInTheOrderInWhichTheyClosed) {
  const std::vector<std::size_t> order = {3, 1, 2, 0};
  const auto result = assign_buckets(std::vector<ParameterSpec>(4, spec(10)), Bytes{80}, order);
  EXPECT_EQ(result.buckets, (Lists{{3, 1}, {2, 0}}));
}

// Case 7.
TEST(AssignBucketsTest, ParametersAreNeverDividedAndMayBeEmpty) {
  const auto result = assign_buckets({spec(0), spec(1000), spec(0)}, Bytes{8});
  EXPECT_EQ(result.buckets, (Lists{{0, 1}, {2}}));
  const auto plan = plan_buckets({spec(0), spec(1000), spec(0)}, {.bucket_bytes = {8}, .last_bucket_bytes = 8});
  EXPECT_EQ(indices(plan), (Lists{{2}, {0, 1}}));
  EXPECT_EQ(plan[0].count, 0);
}

// Case 8: here on one rank; parallel_multirank compares ranks.
TEST(AssignBucketsTest, WhatIsLeftIsClosedInOrderOfFirstArrival) {
  const std::vector<ParameterSpec> specs = {spec(1, DType::float64), spec(1, DType::bfloat16), spec(1),
                                            spec(1, DType::float16), spec(1, DType::float64)};
  const std::vector<std::size_t> order = {3, 2, 4, 1, 0};
  for (int run = 0; run < 1000; ++run) {
    ASSERT_EQ(assign_buckets(specs, Bytes{1 << 20}, order).buckets, (Lists{{3}, {2}, {4, 0}, {1}}));
  }
}

// Case 9: a list of limits counts in the order of reduction.
TEST(PlanBucketsTest, AListOfLimitsCountsFromTheFirstBucketReduced) {
  const std::vector<ParameterSpec> specs(8, spec(10));
  EXPECT_EQ(indices(plan_buckets(specs, {.bucket_bytes = {40, 80}})), (Lists{{7}, {5, 6}, {3, 4}, {1, 2}, {0}}));
  const Section defaults = Section::with_defaults("ddp", ddp_keys());
  EXPECT_EQ(defaults.reals("bucket_mb"), std::vector<double>{25});
  EXPECT_EQ(defaults.real("last_bucket_mb"), 1);
}

// Case 10.
TEST(PlanBucketsTest, TwoDtypesGiveTwoBucketsTheLastParameterFirst) {
  const auto plan = plan_buckets({spec(4, DType::float64), spec(4)}, {.bucket_bytes = {1572864}});
  ASSERT_EQ(indices(plan), (Lists{{1}, {0}}));
  EXPECT_EQ(plan[0].dtype, DType::float32);
  EXPECT_EQ(plan[1].dtype, DType::float64);
}

// Case 11.
TEST(PlanBucketsTest, TheBucketReducedLastIsTheSmallOne) {
  const std::vector<ParameterSpec> specs(40, spec(1 << 18));  // 1 MiB each
  const auto buckets = plan_buckets(specs, {});
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].slots.size(), 14U);
  EXPECT_EQ(buckets[1].slots.size(), 25U);
  EXPECT_EQ(buckets[2].slots.size(), 1U);
  EXPECT_EQ(buckets[2].slots.front().parameter, 0U);
}

TEST(PlanBucketsTest, KnownArrivalDecidesTheOrder) {
  const std::vector<ParameterSpec> specs(4, spec(10));
  const std::vector<std::size_t> arrival = {1, 3, 0, 2};
  EXPECT_EQ(indices(plan_buckets(specs, {.bucket_bytes = {80}, .last_bucket_bytes = 40}, arrival)),
            (Lists{{1}, {3, 0}, {2}}));
  EXPECT_EQ(indices(plan_buckets(specs, {.bucket_bytes = {80}, .last_bucket_bytes = 0}, arrival)),
            (Lists{{1, 3}, {0, 2}}));
}

TEST(PlanBucketsTest, EveryParameterBeginsOn64Bytes) {
  const auto buckets =
      plan_buckets({spec(1), spec(17), spec(16), spec(3, DType::float64), spec(9, DType::float64)}, {});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[1].slots[1].offset, 16);
  EXPECT_EQ(buckets[1].slots[2].offset, 48);
  EXPECT_EQ(buckets[1].count, 64);
  EXPECT_EQ(buckets[0].slots[1].offset, 8);
  EXPECT_EQ(buckets[0].count, 24);
}

TEST(DivideOwnershipTest, EveryElementHasOneOwnerAndBordersLieOnPieces) {
  const std::vector<ParameterSpec> specs = {spec(100'000), spec(7), spec(0), spec(4096), spec(33'333)};
  const auto buckets = plan_buckets(specs, {.bucket_bytes = {200'000}, .last_bucket_bytes = 100});
  for (const int node_ranks : {1, 2, 3, 4, 7}) {
    std::vector<std::int64_t> next(specs.size(), 0);
    for (int node_rank = 0; node_rank < node_ranks; ++node_rank) {
      const auto owned = divide_ownership(specs, buckets, node_rank, node_ranks, 4096);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        EXPECT_EQ(owned[i].begin, next[i]) << i << " of " << node_rank;
        EXPECT_TRUE(owned[i].begin % 4096 == 0 || owned[i].begin == specs[i].count()) << owned[i].begin;
        next[i] = owned[i].end;
      }
    }
    for (std::size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(next[i], specs[i].count());
  }
  // Even parts: of 25 pieces each of two ranks has 12 or 13.
  const auto half = divide_ownership({spec(25 * 4096)}, plan_buckets({spec(25 * 4096)}, {}), 0, 2, 4096);
  EXPECT_EQ(half[0].end / 4096, 13);
}

}  // namespace bucket_plan_test
}  // namespace lockstep::parallel
