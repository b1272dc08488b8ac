// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <random>

#include "every_backend.hpp"

namespace lockstep::mpi {
namespace all_reduce_test {

template <class T>
constexpr DType kDType = DType::complex128;
template <>
constexpr DType kDType<std::uint8_t> = DType::uint8;
template <>
constexpr DType kDType<float> = DType::float32;
template <>
constexpr DType kDType<double> = DType::float64;
template <>
constexpr DType kDType<std::int32_t> = DType::int32;
template <>
constexpr DType kDType<std::int64_t> = DType::int64;

template <class T>
void store(std::byte* target, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(target, values.data(), values.size() * sizeof(T));
}

template <class T>
std::vector<T> fetch(const std::byte* from, std::size_t count) {
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), from, count * sizeof(T));
  return values;
}

/// Rank r holds i % 5 + r + 1 at i: small integers, whose sums are exact.
template <class T>
std::vector<T> whole_numbers(std::size_t count, int rank) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i % 5 + rank + 1);
  return values;
}

template <class T>
std::vector<T> expected_result(std::size_t count, ReduceOp op, int world_size) {
  const auto size = static_cast<std::size_t>(world_size);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto sum = static_cast<T>(size * (i % 5) + size * (size + 1) / 2);
    switch (op) {
      case ReduceOp::sum:
        values[i] = sum;
        break;
      case ReduceOp::average:  // the contract: one multiplication by the reciprocal
        values[i] = static_cast<T>(sum * static_cast<T>(T{1} / static_cast<T>(size)));
        break;
      case ReduceOp::product:
        values[i] = 1;
        for (std::size_t rank = 0; rank < size; ++rank)
          values[i] = static_cast<T>(values[i] * static_cast<T>(i % 5 + rank + 1));
        break;
      case ReduceOp::min:
        values[i] = static_cast<T>(i % 5 + 1);
        break;
      case ReduceOp::max:
        values[i] = static_cast<T>(i % 5 + size);
        break;
    }
  }
  return values;
}

/// Reduces values that lie at `place`, and checks that their surroundings stay as they were.
template <class T>
void expect_reduced_at(Collectives& collectives, std::byte* place, std::size_t count, ReduceOp op) {
  store(place, whole_numbers<T>(count, collectives.rank()));
  const std::byte guard{0x5a};
  place[count * sizeof(T)] = guard;
  collectives.all_reduce(place, count, kDType<T>, op);
  EXPECT_EQ(fetch<T>(place, count), expected_result<T>(count, op, collectives.world_size()));
  EXPECT_EQ(place[count * sizeof(T)], guard);
}

template <class T>
void expect_reduced_everywhere(Collectives& collectives, std::size_t count, const std::vector<ReduceOp>& ops) {
  const std::size_t bytes = count * sizeof(T) + 256;
  const BucketMemory bucket = collectives.allocate_bucket(bytes);
  std::vector<std::byte> outside(bytes);
  for (const ReduceOp op : ops) {
    expect_reduced_at<T>(collectives, bucket.bytes.data(), count, op);
    expect_reduced_at<T>(collectives, bucket.bytes.data() + 192, count, op);
    expect_reduced_at<T>(collectives, bucket.bytes.data() + 3, count, op);
    expect_reduced_at<T>(collectives, outside.data() + 1, count, op);
  }
}

const std::vector<ReduceOp> kRealOps = {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min,
                                        ReduceOp::max};
const std::vector<ReduceOp> kIntegerOps = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max};

// Cases 111, 112.
TEST(AllReduceTest, EverySizeTypeOperationAndPlace) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    for (const std::size_t count : {0U, 1U, 2U, 3U, 63U, 64U, 65U, 4095U, 4096U, 4097U}) {
      SCOPED_TRACE(count);
      expect_reduced_everywhere<float>(collectives, count, kRealOps);
      expect_reduced_everywhere<double>(collectives, count, kRealOps);
      expect_reduced_everywhere<std::int32_t>(collectives, count, kIntegerOps);
      expect_reduced_everywhere<std::int64_t>(collectives, count, kIntegerOps);
      expect_reduced_everywhere<std::uint8_t>(collectives, count, kIntegerOps);
    }
    constexpr std::size_t kLarge = (1 << 20) + 1;  // several messages, several staging chunks
    expect_reduced_everywhere<float>(collectives, kLarge, {ReduceOp::average});
    expect_reduced_everywhere<std::int64_t>(collectives, kLarge, {ReduceOp::sum});
  });
}

// Case 111.
TEST(AllReduceTest, FlagsAreCombinedByAllAndAny) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const bool is_first = collectives.rank() == 0;
    const bool is_alone = collectives.world_size() == 1;
    bool flags[] = {is_first, true, false};
    collectives.all_reduce(flags, 3, DType::boolean, ReduceOp::min);
    EXPECT_EQ(std::vector<bool>(std::begin(flags), std::end(flags)), (std::vector<bool>{is_alone, true, false}));
    bool other_flags[] = {is_first, true, false};
    collectives.all_reduce(other_flags, 3, DType::boolean, ReduceOp::max);
    EXPECT_EQ(std::vector<bool>(std::begin(other_flags), std::end(other_flags)),
              (std::vector<bool>{true, true, false}));
  });
}

std::vector<float> random_values(std::size_t count, int rank) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 100);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<std::uint16_t> halves_of(const std::vector<float>& values, std::uint16_t (*round)(float)) {
  std::vector<std::uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), round);
  return halves;
}

/// The average of every rank's random 16-bit values, summed as float32 and rounded once.
std::vector<std::uint16_t> averages_of_halves(std::size_t count, int world_size, std::uint16_t (*round)(float),
                                              float (*widen)(std::uint16_t)) {
  std::vector<float> sums(count, -0.0F);  // the neutral element of a sum
  for (int rank = 0; rank < world_size; ++rank) {
    const auto halves = halves_of(random_values(count, rank), round);
    for (std::size_t i = 0; i < count; ++i) sums[i] += widen(halves[i]);
  }
  for (float& sum : sums) sum *= 1.0F / static_cast<float>(world_size);
  return halves_of(sums, round);
}

// Case 110.
TEST(AllReduceTest, SixteenBitFloatsAreSummedAsFloat32AndRoundedOnce) {
  constexpr std::size_t kCount = 5003;
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const BucketMemory bucket = collectives.allocate_bucket(kCount * 2);
    const auto expect_averages = [&](DType dtype, std::uint16_t (*round)(float), float (*widen)(std::uint16_t)) {
      const auto expected = averages_of_halves(kCount, collectives.world_size(), round, widen);
      std::vector<std::uint16_t> outside(kCount + 1);
      for (std::byte* const place : {bucket.bytes.data(), reinterpret_cast<std::byte*>(outside.data()) + 1}) {
        store(place, halves_of(random_values(kCount, collectives.rank()), round));
        collectives.all_reduce(place, kCount, dtype, ReduceOp::average);
        EXPECT_EQ(fetch<std::uint16_t>(place, kCount), expected) << name_of(dtype);
      }
    };
    expect_averages(DType::bfloat16, float_to_bfloat16, bfloat16_to_float);
    expect_averages(DType::float16, float_to_half, half_to_float);
  });
}

TEST(AllReduceTest, RanksMayKeepTheirValuesInDifferentPlaces) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const BucketMemory one = collectives.allocate_bucket(8192);
    const BucketMemory other = collectives.allocate_bucket(8192);
    std::vector<std::byte> outside(8192);
    std::byte* const places[] = {one.bytes.data(), one.bytes.data() + 64, other.bytes.data(), outside.data()};
    expect_reduced_at<float>(collectives, places[collectives.rank() % 2], 1000, ReduceOp::sum);
    expect_reduced_at<float>(collectives, places[collectives.rank() % 4], 1000, ReduceOp::sum);
    expect_reduced_at<float>(collectives, places[3 - collectives.rank() % 4], 1000, ReduceOp::sum);
  });
}

TEST(AllReduceTest, BucketsAreZeroedAlignedAndOutliveTheirFirstHandle) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    BucketMemory bucket = collectives.allocate_bucket(1000);
    EXPECT_EQ(bucket.bytes.size(), 1000U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bucket.bytes.data()) % 64, 0U);
    EXPECT_EQ(fetch<std::uint8_t>(bucket.bytes.data(), 1000), std::vector<std::uint8_t>(1000, 0));
    const BucketMemory copy = bucket;
    bucket = {};
    expect_reduced_at<float>(collectives, copy.bytes.data(), 200, ReduceOp::sum);
    EXPECT_TRUE(collectives.allocate_bucket(0).bytes.empty());
    for (int i = 0; i < 20; ++i) {  // the next bucket often lies where the last one was
      const BucketMemory next = collectives.allocate_bucket(1000 + 4096 * (i % 3));
      expect_reduced_at<float>(collectives, next.bytes.data(), 200, ReduceOp::sum);
    }
  });
}

TEST(AllReduceTest, SeveralTicketsInFlight) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    constexpr std::size_t kCount = 100;
    const BucketMemory bucket = collectives.allocate_bucket(8 * kCount * sizeof(float));
    std::vector<Ticket> tickets;
    const auto place = [&](std::size_t i) { return bucket.bytes.data() + i * kCount * sizeof(float); };
    for (std::size_t i = 0; i < 8; ++i) {
      store(place(i), whole_numbers<float>(kCount, collectives.rank()));
      tickets.push_back(collectives.start_all_reduce(place(i), kCount, DType::float32, ReduceOp::sum));
    }
    const auto expected = expected_result<float>(kCount, ReduceOp::sum, collectives.world_size());
    for (std::size_t i = 0; i < 8; ++i) {
      collectives.wait(tickets[i]);
      EXPECT_EQ(fetch<float>(place(i), kCount), expected) << "ticket " << i;
      if (i == 3) collectives.barrier();  // works off the rest, too
    }
    collectives.wait(tickets[0]);  // an old ticket is done forever
  });
}

TEST(AllReduceTest, MoreTicketsInFlightThanTheBackendKeeps) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    constexpr std::size_t kTickets = 1000;
    const BucketMemory bucket = collectives.allocate_bucket(kTickets * sizeof(double));
    store(bucket.bytes.data(), whole_numbers<double>(kTickets, collectives.rank()));
    Ticket last;
    for (std::size_t i = 0; i < kTickets; ++i) {
      last = collectives.start_all_reduce(bucket.bytes.data() + i * sizeof(double), 1, DType::float64, ReduceOp::sum);
    }
    collectives.wait(last);
    EXPECT_EQ(fetch<double>(bucket.bytes.data(), kTickets),
              expected_result<double>(kTickets, ReduceOp::sum, collectives.world_size()));
  });
}

/// A reduction that was started, and how to check it when it is waited for.
struct Running {
  Ticket ticket;
  std::function<void()> check;
};

/// Starts a random reduction of values of type T at `place`.
template <class T>
Running start_random(Collectives& collectives, std::mt19937& generator, std::byte* place, std::size_t count,
                     const std::vector<ReduceOp>& ops) {
  const ReduceOp op = ops[generator() % ops.size()];
  store(place, whole_numbers<T>(count, collectives.rank()));
  const int world_size = collectives.world_size();
  return {.ticket = collectives.start_all_reduce(place, count, kDType<T>, op),
          .check = [=] { EXPECT_EQ(fetch<T>(place, count), expected_result<T>(count, op, world_size)); }};
}

// Case 112.
TEST(AllReduceTest, AThousandRandomOperationsBackToBack) {
  with_every_backend([](Collectives& collectives, const Communicator&) {
    constexpr std::size_t kPlaces = 4;
    constexpr std::size_t kPlaceBytes = 80'000;
    const BucketMemory bucket = collectives.allocate_bucket(kPlaces * kPlaceBytes);
    std::vector<std::byte> outside(kPlaces * kPlaceBytes);
    std::mt19937 generator(11);  // equal on every rank
    std::deque<Running> running;
    const auto finish_first = [&] {
      collectives.wait(running.front().ticket);
      running.front().check();
      running.pop_front();
    };
    for (std::size_t i = 0; i < 1000; ++i) {
      while (running.size() == kPlaces || (!running.empty() && generator() % 3 == 0)) finish_first();
      std::byte* const memory = generator() % 3 == 0 ? outside.data() : bucket.bytes.data();
      std::byte* const place = memory + (i % kPlaces) * kPlaceBytes + generator() % 70;  // may be an odd address
      const std::size_t count = generator() % (generator() % 8 == 0 ? kPlaceBytes / 8 - 70 : 300);
      switch (generator() % 4) {
        case 0:
          running.push_back(start_random<double>(collectives, generator, place, count, kRealOps));
          break;
        case 1:
          running.push_back(start_random<std::uint8_t>(collectives, generator, place, count, kIntegerOps));
          break;
        case 2:
          running.push_back(start_random<std::int32_t>(collectives, generator, place, count, kIntegerOps));
          break;
        default:
          running.push_back(start_random<float>(collectives, generator, place, count, kRealOps));
      }
    }
    while (!running.empty()) finish_first();
  });
}

// Case 113.
TEST(AllReduceTest, ScaledSumsAndAveragesAgreeWithDoublePrecision) {
  constexpr std::size_t kCount = 1000;
  with_every_backend([](Collectives& collectives, const Communicator&) {
    const int size = collectives.world_size();
    std::vector<double> exact(kCount, 0);
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<float> values = random_values(kCount, rank);
      for (std::size_t i = 0; i < kCount; ++i) exact[i] += values[i];
    }
    const auto expect_factor = [&](const char* what, float before, ReduceOp op, float after, double factor) {
      std::vector<float> values = random_values(kCount, collectives.rank());
      for (float& value : values) value *= before;
      collectives.all_reduce(values.data(), kCount, DType::float32, op);
      for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_NEAR(values[i] * after, exact[i] * factor, 1e-6 * (1 + std::abs(exact[i]))) << what;
      }
    };
    expect_factor("before", 1.0F / 3.0F, ReduceOp::sum, 1, 1.0 / 3);
    expect_factor("after", 1, ReduceOp::sum, 1.0F / 3.0F, 1.0 / 3);
    expect_factor("average", 1, ReduceOp::average, 1, 1.0 / size);
    expect_factor("all", 0.5F, ReduceOp::average, 3, 1.5 / size);
  });
}

template <class T>
void fill(void* values, std::size_t count, ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  T neutral{};
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      if constexpr (Limits::has_infinity) neutral = T{-0.0};  // 0 would turn a sum of -0 into 0
      break;
    case ReduceOp::product:
      neutral = T{1};
      break;
    case ReduceOp::min:
      neutral = Limits::has_infinity ? Limits::infinity() : Limits::max();
      break;
    case ReduceOp::max:
      neutral = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      break;
  }
  std::fill_n(static_cast<T*>(values), count, neutral);
}

void fill_halves(void* values, std::size_t count, ReduceOp op, std::uint16_t (*round)(float)) {
  float neutral = 0;
  fill<float>(&neutral, 1, op);
  std::fill_n(static_cast<std::uint16_t*>(values), count, round(neutral));
}

/// Fills `values` with the neutral element of a reduction: the result is bitwise equal to the result of the other
/// ranks. For an average, this holds for the sum; the divisor includes this rank.
void fill_with_neutral(void* values, std::size_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::float32:
      return fill<float>(values, count, op);
    case DType::float64:
      return fill<double>(values, count, op);
    case DType::float16:
      return fill_halves(values, count, op, float_to_half);
    case DType::bfloat16:
      return fill_halves(values, count, op, float_to_bfloat16);
    case DType::int32:
      return fill<std::int32_t>(values, count, op);
    case DType::int64:
      return fill<std::int64_t>(values, count, op);
    case DType::boolean:
      return fill<bool>(values, count, op);
    default:
      return fill<std::uint8_t>(values, count, op);
  }
}

/// The bits of what the first rank contributes when all others contribute the neutral element.
template <class T>
void expect_neutral(Collectives& collectives, DType dtype, const std::vector<ReduceOp>& ops,
                    const std::vector<T>& values) {
  for (const ReduceOp op : ops) {
    std::vector<T> mine = values;
    if (collectives.rank() != 0) fill_with_neutral(mine.data(), mine.size(), dtype, op);
    collectives.all_reduce(mine.data(), mine.size(), dtype, op);
    EXPECT_EQ(std::memcmp(mine.data(), values.data(), values.size() * sizeof(T)), 0)
        << name_of(dtype) << ", operation " << static_cast<int>(op);
  }
}

// Case 124.
TEST(AllReduceTest, ARankWithNothingToSayContributesTheNeutralElement) {
  const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max};
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> floats = {0.0F, -0.0F, 1.5F, -3e38F, 1e-40F, infinity, -infinity};
  with_every_backend([&](Collectives& collectives, const Communicator&) {
    expect_neutral<float>(collectives, DType::float32, ops, floats);
    expect_neutral<double>(collectives, DType::float64, ops, {0.0, -0.0, 1.5, -1e300});
    const std::vector<float> halves = {0.0F, -0.0F, 1.5F, -6e4F, infinity};
    expect_neutral(collectives, DType::float16, ops, halves_of(halves, float_to_half));
    expect_neutral(collectives, DType::bfloat16, ops, halves_of(halves, float_to_bfloat16));
    expect_neutral<std::int32_t>(collectives, DType::int32, ops, {0, -5, std::numeric_limits<std::int32_t>::max()});
    expect_neutral<std::int64_t>(collectives, DType::int64, ops, {0, std::numeric_limits<std::int64_t>::min()});
    expect_neutral<std::uint8_t>(collectives, DType::uint8, ops, {0, 5, 255});
    expect_neutral<std::uint8_t>(collectives, DType::boolean, {ReduceOp::min, ReduceOp::max}, {0, 1});
  });
}

TEST(AllReduceTest, EveryBackendAndRepetitionHasTheBitsOfAPlainLoop) {
  constexpr std::size_t kCount = 100'003;
  const auto world = Communicator::world();
  std::vector<float> expected = random_values(kCount, 0);
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::vector<float> values = random_values(kCount, rank);
    for (std::size_t i = 0; i < kCount; ++i) expected[i] += values[i];
  }
  for (float& value : expected) value *= 1.0F / static_cast<float>(world.size());

  const std::vector<float> mine = random_values(kCount, world.rank());
  with_every_backend([&](Collectives& collectives, const Communicator&) {
    const BucketMemory bucket = collectives.allocate_bucket(kCount * sizeof(float) + 64);
    std::vector<std::byte> outside(kCount * sizeof(float));
    for (int repetition = 0; repetition < 50; ++repetition) {
      std::byte* const place = repetition % 10 == 9 ? outside.data() : bucket.bytes.data() + 4 * (repetition % 16);
      store(place, mine);
      collectives.all_reduce(place, kCount, DType::float32, ReduceOp::average);
      EXPECT_EQ(std::memcmp(place, expected.data(), kCount * sizeof(float)), 0) << "repetition " << repetition;
    }
  });
}

}  // namespace all_reduce_test
}  // namespace lockstep::mpi
