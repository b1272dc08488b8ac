// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/bucket_plan.hpp>

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

ParameterSpec spec(std::int64_t count, DType dtype = DType::float32) {
  return {.name = "p", .dtype = dtype, .shape = {count}, .strides = {1}};
}

/// Parameter indices of the buckets in launch order.
std::vector<std::vector<std::size_t>> indices(const std::vector<Bucket>& buckets) {
  std::vector<std::vector<std::size_t>> lists;
  for (const Bucket& bucket : buckets) {
    auto& list = lists.emplace_back();
    for (const Slot& slot : bucket.slots) list.push_back(slot.parameter);
  }
  return lists;
}

using Lists = std::vector<std::vector<std::size_t>>;

TEST(BucketPlanTest, ABucketClosesWhenItReachesItsLimit) {
  const auto buckets = plan_buckets({spec(100), spec(200), spec(100), spec(50)}, {400, 400});
  EXPECT_EQ(indices(buckets), (Lists{{3}, {2}, {1}, {0}}));
}

TEST(BucketPlanTest, EachDtypeFillsBucketsOfItsOwn) {
  std::vector<ParameterSpec> specs;
  for (int i = 0; i < 3; ++i) {
    specs.push_back(spec(50));
    specs.push_back(spec(25, DType::float64));  // 200 bytes each
  }
  EXPECT_EQ(indices(plan_buckets(specs, {400, 400})), (Lists{{5}, {4}, {1, 3}, {0, 2}}));
  // Limit 200 for the bucket reduced last, 400 for the others: each dtype has its own row of limits.
  EXPECT_EQ(indices(plan_buckets(specs, {400, 200})), (Lists{{3, 5}, {2, 4}, {1}, {0}}));
}

TEST(BucketPlanTest, TheBucketReducedLastIsTheSmallOne) {
  const std::vector<ParameterSpec> specs(40, spec(1 << 18));  // 1 MiB each
  const auto buckets = plan_buckets(specs, {.bucket_bytes = 25 << 20, .last_bucket_bytes = 1 << 20});
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].slots.size(), 14U);
  EXPECT_EQ(buckets[1].slots.size(), 25U);
  EXPECT_EQ(buckets[2].slots.size(), 1U);
  EXPECT_EQ(buckets[2].slots.front().parameter, 0U);
}

TEST(BucketPlanTest, ParametersAreNeverDividedAndMayBeEmpty) {
  const auto buckets = plan_buckets({spec(0), spec(1000), spec(0)}, {8, 8});
  EXPECT_EQ(indices(buckets), (Lists{{2}, {0, 1}}));
  EXPECT_EQ(buckets[0].count, 0);
}

TEST(BucketPlanTest, EveryParameterBeginsOn64Bytes) {
  const auto buckets =
      plan_buckets({spec(1), spec(17), spec(16), spec(3, DType::float64), spec(9, DType::float64)}, {1 << 20, 1 << 20});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[1].slots[1].offset, 16);
  EXPECT_EQ(buckets[1].slots[2].offset, 48);
  EXPECT_EQ(buckets[1].count, 64);
  EXPECT_EQ(buckets[0].slots[1].offset, 8);
  EXPECT_EQ(buckets[0].count, 24);
}

}  // namespace
}  // namespace lockstep::parallel
