// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {
namespace communicator_test {

static_assert(std::is_nothrow_move_constructible_v<Communicator> && std::is_nothrow_move_assignable_v<Communicator>);

/// Makes MPI calls short, so that a few numbers already need several.
class ShortChunks {
 public:
  explicit ShortChunks(std::size_t limit) { max_chunk = limit; }
  ~ShortChunks() { max_chunk = former_; }

 private:
  std::size_t former_ = max_chunk;
};

template <class T>
void expect_reductions(const Communicator& world) {
  const auto size = static_cast<T>(world.size());
  const auto mine = static_cast<T>(world.rank() + 1);
  std::vector<T> values = {mine, static_cast<T>(2 * mine), 0};
  world.all_reduce(std::span(values));
  const auto sum = static_cast<T>(size * (size + 1) / 2);
  EXPECT_EQ(values, (std::vector<T>{sum, static_cast<T>(2 * sum), 0}));
  EXPECT_EQ(world.all_reduce(mine, Op::min), T{1});
  EXPECT_EQ(world.all_reduce(mine, Op::max), size);
}

TEST(CommunicatorTest, ReducesEveryType) {
  const auto world = Communicator::world();
  expect_reductions<float>(world);
  expect_reductions<double>(world);
  expect_reductions<std::int32_t>(world);
  expect_reductions<std::int64_t>(world);
  expect_reductions<std::uint8_t>(world);
  expect_reductions<std::uint64_t>(world);
}

TEST(CommunicatorTest, BroadcastsFromEveryRank) {
  const auto world = Communicator::world();
  for (int root = 0; root < world.size(); ++root) {
    std::vector<std::int64_t> values(5, world.rank() == root ? 100 + root : -1);
    world.broadcast(std::span(values), root);
    EXPECT_EQ(values, std::vector<std::int64_t>(5, 100 + root));
  }
}

TEST(CommunicatorTest, GathersInRankOrder) {
  const auto world = Communicator::world();
  const std::vector<float> mine(3, static_cast<float>(world.rank()));
  std::vector<float> all(3 * world.size(), -1.0F);
  world.all_gather(std::span(mine), std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i / 3));
}

TEST(CommunicatorTest, CutsCountsThatAnIntCannotHold) {
  const ShortChunks chunks(4);
  const auto world = Communicator::world();
  std::vector<std::int32_t> values(11);
  std::iota(values.begin(), values.end(), 0);
  world.all_reduce(std::span(values));
  for (int i = 0; i < 11; ++i) EXPECT_EQ(values[i], i * world.size());

  const int root = world.size() - 1;
  std::vector<std::uint8_t> bytes(9, world.rank() == root ? 7 : 0);
  world.broadcast(std::span(bytes), root);
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(9, 7));

  const std::vector<double> mine(6, world.rank() + 0.5);
  std::vector<double> all(6 * world.size(), -1.0);
  world.all_gather(std::span(mine), std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<double>(i / 6) + 0.5);

  const std::string text(10 + world.rank(), static_cast<char>('a' + world.rank()));
  const auto texts = world.all_gather(text);
  const auto at_root = world.gather(text, root);
  EXPECT_EQ(at_root.size(), world.rank() == root ? static_cast<std::size_t>(world.size()) : 0U);
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string expected(10 + rank, static_cast<char>('a' + rank));
    EXPECT_EQ(texts[rank], expected);
    if (!at_root.empty()) {
      EXPECT_EQ(at_root[rank], expected);
    }
  }
  EXPECT_EQ(world.broadcast(text, root), std::string(10 + root, static_cast<char>('a' + root)));
}

std::string text_of(int rank, std::size_t length) { return std::string(length, static_cast<char>('A' + rank)); }

// Case 117.
TEST(CommunicatorTest, CarriesTextsOfAnyLength) {
  const auto world = Communicator::world();
  for (const std::size_t unit : {0U, 1U, 1000U, 3U << 20}) {
    // Lengths differ by rank; with several ranks rank 0 has nothing to say.
    const auto length = [&](int rank) { return world.size() == 1 ? unit : unit * rank / (world.size() - 1); };
    const std::string mine = text_of(world.rank(), length(world.rank()));
    const auto all = world.all_gather(mine);
    EXPECT_EQ(all.size(), static_cast<std::size_t>(world.size()));
    for (int root = 0; root < world.size(); ++root) {
      const std::string expected = text_of(root, length(root));
      EXPECT_TRUE(all[root] == expected) << "all_gather, rank " << root << ", unit " << unit;
      EXPECT_TRUE(world.broadcast(mine, root) == expected) << "broadcast, rank " << root << ", unit " << unit;
      EXPECT_TRUE(world.gather(mine, root) == (world.rank() == root ? all : std::vector<std::string>())) << root;
    }
  }
}

TEST(CommunicatorTest, AgreesOnlyWhenAllDo) {
  const auto world = Communicator::world();
  EXPECT_TRUE(world.agree(true));
  EXPECT_FALSE(world.agree(false));
  for (int rank = 0; rank < world.size(); ++rank) EXPECT_FALSE(world.agree(world.rank() != rank));
}

TEST(CommunicatorTest, SplitsByColorAndOrdersByKey) {
  const auto world = Communicator::world();
  const Communicator half = world.split(world.rank() % 2, -world.rank());
  const int my_color_size = (world.size() + 1 - world.rank() % 2) / 2;
  EXPECT_EQ(half.size(), my_color_size);
  EXPECT_EQ(half.rank(), my_color_size - 1 - world.rank() / 2);
  const int rank_sum = half.all_reduce<std::int32_t>(world.rank());
  int expected = 0;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) expected += rank;
  EXPECT_EQ(rank_sum, expected);
  EXPECT_EQ(world.split_by_host().size(), world.size());
  EXPECT_EQ(world.all_reduce<std::int32_t>(1), world.size());
}

TEST(CommunicatorTest, RefusesNegativeColors) { EXPECT_THROW(Communicator::world().split(-1), std::logic_error); }

TEST(CommunicatorTest, KnowsItsMembersInTheWorld) {
  const auto world = Communicator::world();
  const Communicator half = world.split(world.rank() % 2, -world.rank());
  const std::vector<int> ranks = half.world_ranks();
  EXPECT_EQ(ranks.size(), static_cast<std::size_t>(half.size()));
  EXPECT_EQ(ranks[half.rank()], world.rank());
  EXPECT_TRUE(std::is_sorted(ranks.rbegin(), ranks.rend()));
}

TEST(CommunicatorTest, IsALineOfItsOwn) {
  const auto world = Communicator::world();
  const Communicator other(world.handle());
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(world.handle(), other.handle(), &relation);
  EXPECT_EQ(relation, MPI_CONGRUENT);
}

TEST(CommunicatorTest, MovedFromHoldsTheNullHandle) {
  auto world = Communicator::world();
  const MPI_Comm handle = world.handle();
  Communicator taken(std::move(world));
  EXPECT_EQ(world.handle(), MPI_COMM_NULL);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(taken.handle(), handle);
  auto assigned = Communicator::world();
  assigned = std::move(taken);
  EXPECT_EQ(taken.handle(), MPI_COMM_NULL);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(assigned.handle(), handle);
  EXPECT_EQ(assigned.all_reduce<std::int32_t>(1), assigned.size());
}

// Case 118.
TEST(CommunicatorTest, HundredsOfThemDoNotUseUpMpi) {
  const auto world = Communicator::world();
  for (int i = 0; i < 100; ++i) {
    const Communicator part = world.split(world.rank() % 2);
    EXPECT_EQ(part.all_reduce<std::int32_t>(1), part.size());
  }
}

TEST(CommunicatorTest, MpiErrorsBecomeCommErrors) {
  const auto world = Communicator::world();
  std::vector<float> values(1);
  try {
    world.broadcast(std::span(values), world.size());
    ADD_FAILURE() << "there is no such root";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("MPI_Bcast failed at communicator.cpp:"), 0U) << text;
    EXPECT_NE(text.find("root"), std::string::npos) << text;
  }
}

/// The error that `together` throws on this rank: class, agreement and text in one line.
std::string outcome_of(const Communicator& world, const std::function<void()>& step) {
  try {
    world.all_or_throw(step);
    return "fine";
  } catch (const Error& error) {
    const bool is_data = dynamic_cast<const DataError*>(&error) != nullptr;
    const bool is_numeric = dynamic_cast<const NumericError*>(&error) != nullptr;
    return std::string(is_data      ? "data"
                       : is_numeric ? "numeric"
                                    : "error") +
           std::to_string(static_cast<int>(error.exit_code())) + (error.is_agreed() ? " agreed: " : " alone: ") +
           error.what();
  }
}

TEST(AllOrThrowTest, RunsTheStepOnEveryRank) {
  const auto world = Communicator::world();
  int runs = 0;
  EXPECT_EQ(outcome_of(world, [&runs] { ++runs; }), "fine");
  EXPECT_EQ(runs, 1);
}

TEST(AllOrThrowTest, FailureOfOneIsThrownByAll) {
  const auto world = Communicator::world();
  for (int culprit = 0; culprit < world.size(); ++culprit) {
    const std::string outcome = outcome_of(world, [&] {
      if (world.rank() == culprit) throw DataError("shard.bin", "is short");
    });
    const std::string prefix = world.size() == 1 ? "" : "rank " + std::to_string(culprit) + ": ";
    EXPECT_EQ(outcome, "data3 agreed: " + prefix + "shard.bin: is short");
  }
}

TEST(AllOrThrowTest, OfSeveralFailuresTheLowestRankSpeaks) {
  const auto world = Communicator::world();
  if (world.size() < 3) return;  // two failing ranks and one that does not
  const std::string outcome = outcome_of(world, [&] {
    if (world.rank() == 1) throw NumericError("loss is nan");
    if (world.rank() == 2) throw DataError("shard.bin", "is short");
  });
  EXPECT_EQ(outcome, "numeric6 agreed: rank 1: loss is nan");
}

TEST(AllOrThrowTest, FailureOfAllIsNobodysInParticular) {
  const auto world = Communicator::world();
  EXPECT_EQ(outcome_of(world, [] { throw DataError("all.bin", "is missing"); }), "data3 agreed: all.bin: is missing");
}

TEST(AllOrThrowTest, OtherExceptionsAreInternalErrors) {
  const auto world = Communicator::world();
  const std::string prefix = world.size() == 1 ? "" : "rank 0: ";
  const auto root_throws = [&world](auto thrown) {
    return outcome_of(world, [&world, thrown] {
      if (world.is_root()) throw thrown;
    });
  };
  EXPECT_EQ(root_throws(std::runtime_error("odd")), "error70 agreed: " + prefix + "odd");
  EXPECT_EQ(root_throws(42), "error70 agreed: " + prefix + "exception of unknown type");
}

TEST(AllOrThrowTest, MayBeNested) {
  const auto world = Communicator::world();
  const std::string outcome = outcome_of(world, [&] {
    world.all_or_throw([&] {
      if (world.rank() == world.size() - 1) throw DataError("inner.bin", "is short");
    });
  });
  const std::string prefix = world.size() == 1 ? "" : "rank " + std::to_string(world.size() - 1) + ": ";
  EXPECT_EQ(outcome, "data3 agreed: " + prefix + "inner.bin: is short");
}

}  // namespace communicator_test
}  // namespace lockstep::mpi
