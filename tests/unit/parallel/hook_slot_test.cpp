// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "parallel/sync/gradient_buckets.hpp"

namespace lockstep::parallel {
namespace hook_slot_test {

GradBucket bucket_of(std::vector<float> values) {
  GradBucket bucket;
  bucket.buffer = torch::tensor(values);
  return bucket;
}

CommHook hook_that_gives(const at::Tensor& result) {
  return [result](const GradBucket&) -> Completion { return [result] { return result; }; };
}

TEST(HookSlotTest, IsEmptyAtFirst) {
  const HookSlot slot;
  EXPECT_FALSE(slot.has_hook());
  EXPECT_FALSE(slot.is_silent());
}

TEST(HookSlotTest, RefusesASecondHookAnEmptyOneAndALateOne) {
  HookSlot slot;
  EXPECT_THROW(slot.set({}, false, false), ConfigError);
  EXPECT_THROW(slot.set(noop_hook(), false, /*has_stepped=*/true), ConfigError);
  EXPECT_FALSE(slot.has_hook());
  slot.set(noop_hook(), /*is_silent=*/true, false);
  EXPECT_TRUE(slot.has_hook());
  EXPECT_TRUE(slot.is_silent());
  EXPECT_THROW(slot.set(noop_hook(), false, false), ConfigError);
}

TEST(HookSlotTest, StoresTheResultInTheBucket) {
  HookSlot slot;
  slot.set(hook_that_gives(torch::tensor({{3.0F}, {4.0F}})), false, false);
  const GradBucket bucket = bucket_of({1, 2});
  slot.start(0, bucket);
  slot.finish(0, bucket);
  EXPECT_TRUE(bucket.buffer.equal(torch::tensor({3.0F, 4.0F})));
}

TEST(HookSlotTest, KeepsTheStartedReductionsOfAllBuckets) {
  HookSlot slot;
  std::vector<std::size_t> finished;
  slot.set(
      [&finished](const GradBucket& bucket) -> Completion {
        return [&finished, index = bucket.index, buffer = bucket.buffer] {
          finished.push_back(index);
          return buffer;
        };
      },
      false, false);
  std::vector<GradBucket> buckets = {bucket_of({1}), bucket_of({2})};
  buckets[1].index = 1;
  for (const std::size_t b : {0, 1}) slot.start(b, buckets[b]);
  EXPECT_TRUE(finished.empty());
  for (const std::size_t b : {0, 1}) slot.finish(b, buckets[b]);
  EXPECT_EQ(finished, (std::vector<std::size_t>{0, 1}));
}

TEST(HookSlotTest, RefusesAResultOfAnotherSizeOrType) {
  const GradBucket bucket = bucket_of({1, 2});
  for (const at::Tensor& result : {torch::ones({3}), torch::ones({2}, at::kDouble)}) {
    HookSlot slot;
    slot.set(hook_that_gives(result), false, false);
    slot.start(0, bucket);
    EXPECT_THROW(slot.finish(0, bucket), ConfigError);
  }
}

}  // namespace hook_slot_test
}  // namespace lockstep::parallel
