// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "every_backend.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::mpi {
namespace reduce_range_test {

constexpr std::size_t kCount = 30'011;

std::vector<float> random_values(int rank) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 40);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(generator);
  return values;
}

/// The averages that all_reduce gives for every rank's random_values.
std::vector<float> averages(Collectives& collectives) {
  std::vector<float> values = random_values(collectives.rank());
  collectives.all_reduce(values.data(), kCount, DType::float32, ReduceOp::average);
  return values;
}

/// Places for the values of all ranks: in a bucket, there at an odd address, in private memory, and some of both.
std::vector<std::byte*> places(Collectives& collectives, const BucketMemory& bucket, std::vector<std::byte>& outside) {
  std::byte* const mixed = collectives.rank() == 0 ? outside.data() : bucket.bytes.data();
  return {bucket.bytes.data(), bucket.bytes.data() + 3, outside.data(), mixed};
}

/// Takes `range` and checks that its pieces follow each other, are as long as they can be, since sums are added piece
/// by piece, and have the bits of `expected`.
void expect_range(Collectives& collectives, Ticket ticket, Slice range, const std::vector<float>& expected) {
  std::size_t next = range.begin;
  collectives.reduce_range(ticket, range, [&](std::size_t begin, const std::byte* values, std::size_t count) {
    EXPECT_EQ(begin, next);
    EXPECT_EQ(count, std::min(Collectives::kPieceElements, range.begin + range.count - begin));
    EXPECT_EQ(std::memcmp(values, expected.data() + begin, count * sizeof(float)), 0) << "from " << begin;
    next = begin + count;
  });
  EXPECT_EQ(next, range.begin + range.count);
}

TEST(ReduceRangeTest, RangesHaveTheBitsOfAllReduce) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const BucketMemory bucket = collectives.allocate_bucket(kCount * sizeof(float) + 64);
    std::vector<std::byte> outside(bucket.bytes.size());
    const std::vector<float> expected = averages(collectives);
    const std::vector<float> mine = random_values(collectives.rank());
    const Slice slice = slice_of(kCount, collectives.local_rank(), collectives.local_size(), sizeof(float));
    for (std::byte* const place : places(collectives, bucket, outside)) {
      std::memcpy(place, mine.data(), kCount * sizeof(float));
      const Ticket ticket = collectives.start_reduce_ranges(place, kCount, DType::float32, ReduceOp::average);
      expect_range(collectives, ticket, slice, expected);
      expect_range(collectives, ticket, {.begin = 0, .count = 0}, expected);
      expect_range(collectives, ticket, {.begin = kCount - 1, .count = 1}, expected);
      expect_range(collectives, ticket, {.begin = 17, .count = 4097}, expected);  // every rank's: they overlap
      expect_range(collectives, ticket, {.begin = 0, .count = kCount}, expected);
      collectives.barrier();
    }
  });
}

TEST(ReduceRangeTest, ARankMayNeedNothing) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const BucketMemory bucket = collectives.allocate_bucket(kCount * sizeof(float));
    const std::vector<float> expected = averages(collectives);
    std::memcpy(bucket.bytes.data(), random_values(collectives.rank()).data(), kCount * sizeof(float));
    const Ticket ticket =
        collectives.start_reduce_ranges(bucket.bytes.data(), kCount, DType::float32, ReduceOp::average);
    expect_range(collectives, ticket, {.begin = 0, .count = collectives.rank() == 0 ? kCount : 0}, expected);
    collectives.barrier();
  });
}

/// Places for integers, and what the ranks' sum of `value` at one of them must be.
class Sums {
 public:
  Sums(Collectives& collectives, std::size_t places)
      : collectives_(collectives), bucket_(collectives.allocate_bucket(places * 64 * sizeof(std::int32_t))) {}

  std::int32_t* place(std::size_t i) const { return reinterpret_cast<std::int32_t*>(bucket_.bytes.data()) + 64 * i; }

  Ticket start_ranges(std::size_t i, std::int32_t value) const {
    std::fill_n(place(i), 64, value);
    return collectives_.start_reduce_ranges(place(i), 64, DType::int32, ReduceOp::sum);
  }
  Ticket start_whole(std::size_t i, std::int32_t value) const {
    std::fill_n(place(i), 64, value);
    return collectives_.start_all_reduce(place(i), 64, DType::int32, ReduceOp::sum);
  }
  void expect(Ticket ticket, std::int32_t value) const {
    collectives_.reduce_range(ticket, {.begin = 3, .count = 2}, [&](std::size_t, const std::byte* values, std::size_t) {
      EXPECT_EQ(*reinterpret_cast<const std::int32_t*>(values), value * collectives_.world_size());
    });
  }

 private:
  Collectives& collectives_;
  BucketMemory bucket_;
};

TEST(ReduceRangeTest, TicketsAreTakenInAnyOrderUntilALaterOperation) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const Sums sums(collectives, 4);
    for (int round = 1; round <= 100; ++round) {
      const Ticket first = sums.start_ranges(0, 10 * round);
      const Ticket whole = sums.start_whole(1, 10 * round + 1);
      const Ticket second = sums.start_ranges(2, 10 * round + 2);
      const Ticket third = sums.start_ranges(3, 10 * round + 3);
      if (collectives.rank() % 2 == 0) sums.expect(first, 10 * round);  // not all ranks need it
      sums.expect(third, 10 * round + 3);                               // performs all before it, as a wait would
      sums.expect(second, 10 * round + 2);
      sums.expect(third, 10 * round + 3);
      collectives.wait(whole);
      EXPECT_EQ(*sums.place(1), collectives.world_size() * (10 * round + 1));
      sums.expect(third, 10 * round + 3);  // was started later
      EXPECT_THROW(sums.expect(first, 0), std::logic_error);
      EXPECT_THROW(collectives.wait(third), std::logic_error);
      collectives.barrier();
      EXPECT_THROW(sums.expect(third, 0), std::logic_error);
    }
  });
}

TEST(ReduceRangeTest, AStepMayHaveManyTickets) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const Sums sums(collectives, Collectives::kMaxRangeTickets);
    for (int step = 0; step < 5; ++step) {
      std::vector<Ticket> tickets;
      for (int i = 0; i < static_cast<int>(Collectives::kMaxRangeTickets); ++i) {
        tickets.push_back(sums.start_ranges(static_cast<std::size_t>(i), step + i));
      }
      for (std::size_t i = tickets.size(); i > 0; --i) sums.expect(tickets[i - 1], step + static_cast<int>(i) - 1);
      collectives.barrier();
    }
  });
}

TEST(ReduceRangeTest, TooManyTicketsAreAMistakeInTheProgram) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const Sums sums(collectives, 1);
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < Collectives::kMaxRangeTickets; ++i) sums.start_ranges(0, 1);
      EXPECT_THROW(sums.start_ranges(0, 1), std::logic_error);
      collectives.barrier();
    }
  });
}

// The step of a trainer: ranks fill their buckets, each consumes its own range and publishes it there, and a barrier
// allows the next step to overwrite all.
TEST(ReduceRangeTest, ABarrierMakesOverwritingSafe) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    constexpr std::size_t kElements = 1000;
    const BucketMemory bucket = collectives.allocate_bucket(kElements * sizeof(std::int32_t));
    auto* const values = reinterpret_cast<std::int32_t*>(bucket.bytes.data());
    const Slice slice = slice_of(kElements, collectives.local_rank(), collectives.local_size(), sizeof(std::int32_t));
    const int size = collectives.world_size();
    int wrong = 0;
    for (int round = 0; round < 1000; ++round) {
      std::iota(values, values + kElements, round + collectives.rank());
      const Ticket ticket = collectives.start_reduce_ranges(values, kElements, DType::int32, ReduceOp::sum);
      collectives.reduce_range(ticket, slice, [&](std::size_t begin, const std::byte* piece, std::size_t count) {
        std::memcpy(values + begin, piece, count * sizeof(std::int32_t));  // nobody else asks for these
      });
      for (std::size_t i = slice.begin; i < slice.begin + slice.count; ++i) {
        wrong += values[i] != size * (round + static_cast<int>(i)) + size * (size - 1) / 2 ? 1 : 0;
      }
      collectives.barrier();
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(ReduceRangeTest, WhatTheConsumerThrowsReachesTheCallerAndBreaksNothing) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    float value = 1;
    const auto refuse = [](std::size_t, const std::byte*, std::size_t) { throw NumericError("gradient is nan"); };
    const Ticket ticket = collectives.start_reduce_ranges(&value, 1, DType::float32, ReduceOp::sum);
    EXPECT_THROW(collectives.reduce_range(ticket, {.begin = 0, .count = 1}, refuse), NumericError);
    collectives.barrier();
  });
}

TEST(ReduceRangeTest, WrongArgumentsAreMistakesInTheProgram) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    float value = 1;
    const auto ignore = [](std::size_t, const std::byte*, std::size_t) {};
    const Ticket ticket = collectives.start_reduce_ranges(&value, 1, DType::float32, ReduceOp::sum);
    const Ticket whole = collectives.start_all_reduce(&value, 0, DType::float32, ReduceOp::sum);
    EXPECT_THROW(collectives.reduce_range({whole.sequence + 1}, {}, ignore), std::logic_error);
    EXPECT_THROW(collectives.reduce_range(whole, {}, ignore), std::logic_error);
    EXPECT_THROW(collectives.reduce_range(ticket, {.begin = 1, .count = 1}, ignore), std::logic_error);
    EXPECT_THROW(collectives.reduce_range(ticket, {.begin = 2, .count = 0}, ignore), std::logic_error);
    EXPECT_THROW(collectives.start_reduce_ranges(&value, 1, DType::complex64, ReduceOp::sum), std::logic_error);
    collectives.reduce_range(ticket, {.begin = 1, .count = 0}, ignore);
    collectives.barrier();
  });
}

TEST(ReduceRangeTest, LocalRanksShareAHost) {
  with_every_backend([](Collectives& collectives, const Communicator& world) {
    int local_rank = 0;
    int local_size = 1;
    if (collectives.name() == "shm") {
      local_rank = world.rank();
      local_size = world.size();
    } else if (collectives.name() == "hierarchical") {
      const Topology topology = Topology::of(world, std::min(world.size(), 2));
      local_rank = topology.local_rank;
      local_size = topology.local_size;
    }
    EXPECT_EQ(collectives.local_rank(), local_rank);
    EXPECT_EQ(collectives.local_size(), local_size);
  });
}

}  // namespace reduce_range_test
}  // namespace lockstep::mpi
