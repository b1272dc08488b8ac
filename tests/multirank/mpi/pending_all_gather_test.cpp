// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/pending_all_gather.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep::mpi {
namespace pending_all_gather_test {

TEST(PendingAllGatherTest, BringsTheNumbersOfAllRanksInTheirOrder) {
  const Communicator world = Communicator::world();
  const double rank = world.rank();
  PendingAllGather pending(world, {rank, 10 * rank});
  const std::span<const double> all = pending.wait();
  ASSERT_EQ(all.size(), 2 * static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    EXPECT_EQ(all[2 * static_cast<std::size_t>(r)], r);
    EXPECT_EQ(all[2 * static_cast<std::size_t>(r) + 1], 10 * r);
  }
}

// Nobody waits to begin: the first rank is done with its part while another has not come yet.
TEST(PendingAllGatherTest, StartsWithoutWaiting) {
  const Communicator world = Communicator::world();
  const Communicator line(world.handle());
  world.barrier();
  const bool is_late = world.rank() == world.size() - 1 && world.size() > 1;
  if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto before = std::chrono::steady_clock::now();
  PendingAllGather pending(line, {1.0});
  const bool is_done_at_once = pending.is_done();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  if (is_late) return pending.wait(), void();
  EXPECT_LT(seconds, 0.2);
  EXPECT_EQ(is_done_at_once, world.size() == 1);
  while (!pending.is_done()) std::this_thread::yield();
  EXPECT_EQ(pending.wait().size(), static_cast<std::size_t>(world.size()));
}

// Other collectives pass one that is under way on a line of its own.
TEST(PendingAllGatherTest, OthersPassIt) {
  const Communicator world = Communicator::world();
  const Communicator line(world.handle());
  PendingAllGather pending(line, {static_cast<double>(world.rank())});
  EXPECT_EQ(world.all_reduce(1.0), world.size());
  EXPECT_EQ(pending.wait().back(), world.size() - 1);
}

}  // namespace pending_all_gather_test
}  // namespace lockstep::mpi
