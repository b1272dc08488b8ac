// SPDX-License-Identifier: BSD-3-Clause
#include "support/testing_collectives.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "mpi/shared/lane_tree.hpp"

namespace lockstep::mpi {
namespace testing_collectives_test {

using testing::make_delay_collectives;
using testing::make_fake_collectives;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

TEST(FakeCollectivesTest, EveryRankContributesTheSame) {
  const auto fake = make_fake_collectives(3, 1);
  EXPECT_EQ(fake->rank(), 1);
  EXPECT_EQ(fake->world_size(), 3);
  const auto reduced = [&](ReduceOp op) {
    std::vector<double> values = {2, -4};
    fake->all_reduce(values.data(), 2, DType::float64, op);
    return values;
  };
  EXPECT_EQ(reduced(ReduceOp::sum), (std::vector<double>{6, -12}));
  EXPECT_EQ(reduced(ReduceOp::average), (std::vector<double>{6 * (1.0 / 3), -12 * (1.0 / 3)}));
  EXPECT_EQ(reduced(ReduceOp::product), (std::vector<double>{8, -64}));
  EXPECT_EQ(reduced(ReduceOp::max), (std::vector<double>{2, -4}));
}

TEST(FakeCollectivesTest, OffersAllMembers) {
  const auto fake = make_fake_collectives(2);
  const BucketMemory bucket = fake->allocate_bucket(100 * sizeof(float));
  auto* const values = reinterpret_cast<float*>(bucket.bytes.data());
  std::fill_n(values, 100, 1.5F);
  const Ticket ticket = fake->start_reduce_ranges(values, 100, DType::float32, ReduceOp::sum);
  fake->reduce_range(ticket, {.begin = 90, .count = 10}, [](std::size_t begin, const std::byte* piece, std::size_t n) {
    EXPECT_EQ(begin, 90U);
    EXPECT_EQ(n, 10U);
    EXPECT_EQ(*reinterpret_cast<const float*>(piece), 3);
  });
  std::vector<float> slice(slice_of(100, 0, 2, sizeof(float)).count);
  fake->reduce_scatter(values, 100, DType::float32, ReduceOp::average, slice.data());
  EXPECT_EQ(slice, std::vector<float>(slice.size(), 1.5F));

  const std::vector<std::byte> mine = {std::byte{1}, std::byte{2}};
  std::vector<std::byte> all(4);
  fake->all_gather(mine, all);
  EXPECT_EQ(all, (std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{1}, std::byte{2}}));
  fake->broadcast(all, 1);
  fake->barrier();
  EXPECT_EQ(fake->split(1)->world_size(), 2);
}

TEST(FakeCollectivesTest, LanesNeedRanksThatAreAlike) {
  const auto fake = make_fake_collectives(4);
  float value = 2;
  const LaneTree even = LaneTree::even(8, 4);
  fake->wait(start_lane_reduce(*fake, &value, 1, 1, DType::float32, ReduceOp::average, even));
  EXPECT_EQ(value, 1);  // four nodes of two lanes
  const LaneTree uneven({0, 3, 4, 6, 8});
  EXPECT_THROW(start_lane_reduce(*fake, &value, 1, 1, DType::float32, ReduceOp::sum, uneven), std::logic_error);
  EXPECT_THROW(make_fake_collectives(2, 2), std::logic_error);
}

TEST(DelayCollectivesTest, OperationsShareTheLinkFromTheirStartOn) {
  // 100 ms and 1 us a byte: 130 ms for 30,000 bytes.
  const auto delayed = make_delay_collectives(make_fake_collectives(2), {.latency_s = 0.1, .bytes_per_s = 1e6});
  std::vector<std::uint8_t> values(30'000, 1);
  const Clock::time_point start = Clock::now();
  const Ticket first = delayed->start_all_reduce(values.data(), values.size(), DType::uint8, ReduceOp::sum);
  const Ticket second = delayed->start_all_reduce(values.data(), 0, DType::uint8, ReduceOp::sum);
  EXPECT_LT(seconds_since(start), 0.1);  // starting does not wait
  delayed->wait(first);
  EXPECT_GE(seconds_since(start), 0.13);
  EXPECT_EQ(values[0], 2);
  delayed->wait(second);
  EXPECT_GE(seconds_since(start), 0.23);
}

TEST(DelayCollectivesTest, TimeThatIsOverCostsNothing) {
  const auto delayed = make_delay_collectives(make_fake_collectives(2), {.latency_s = 0.1, .bytes_per_s = 1e9});
  float value = 1;
  const Clock::time_point start = Clock::now();
  const Ticket ticket = delayed->start_reduce_ranges(&value, 1, DType::float32, ReduceOp::sum);
  while (seconds_since(start) < 0.1) {  // computes
  }
  const Clock::time_point later = Clock::now();
  bool is_called = false;
  delayed->reduce_range(ticket, {.begin = 0, .count = 1}, [&](auto...) { is_called = true; });
  EXPECT_LT(seconds_since(later), 0.09);
  EXPECT_TRUE(is_called);
}

TEST(DelayCollectivesTest, MembersThatBlockTakeTheirTime) {
  const auto delayed = make_delay_collectives(make_fake_collectives(2), {.latency_s = 0.01, .bytes_per_s = 1e9});
  const Clock::time_point start = Clock::now();
  std::vector<std::byte> bytes(2);
  delayed->broadcast(bytes, 0);
  delayed->all_gather(std::span(bytes).first(1), bytes);
  delayed->barrier();
  EXPECT_GE(seconds_since(start), 0.03);
  EXPECT_EQ(delayed->split(0)->name(), "delay");
}

}  // namespace testing_collectives_test
}  // namespace lockstep::mpi
