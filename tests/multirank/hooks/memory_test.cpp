// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/system/resources.hpp"
#include "hooked_run.hpp"

namespace lockstep::engine {
namespace memory_test {

TEST(MemoryHookTest, MeasuresEveryFewStepsAndAtTheLast) {
  const mpi::Communicator world = mpi::Communicator::world();
  HookedRun run(world, with_hook("memory,every=5"));
  EXPECT_EQ(run.trainer.train(), Outcome::done);
  const History& now = run.trainer.view().events.history("memory/rss_mb");
  const History& peak = run.trainer.view().events.history("memory/peak_rss_mb");
  ASSERT_EQ(now.size(), 3U);
  EXPECT_EQ(now.at(0).step, 5);
  EXPECT_EQ(now.at(1).step, 10);
  EXPECT_EQ(now.at(2).step, 12);
  for (std::size_t i = 0; i < now.size(); ++i) {
    EXPECT_GT(now.at(i).value, 10);  // LibTorch alone takes more
    EXPECT_LE(now.at(i).value, peak.at(i).value);
    EXPECT_LE(peak.at(i).value, peak_memory_mb());
  }
  run.hook().after_train(run.trainer.view(), Outcome::failed);  // no collective
}

// The memory that a process touches it holds, until it gives it back.
TEST(MemoryHookTest, TheSystemKnowsWhatAProcessHolds) {
  const double before = resident_memory_mb();
  {
    const std::vector<char> much(64 << 20, 'x');
    asm volatile("" : : "r"(much.data()) : "memory");  // clang leaves out memory that is not read
    EXPECT_GE(resident_memory_mb(), before + 60);
  }
  EXPECT_LE(resident_memory_mb(), before + 32);
  EXPECT_GE(peak_memory_mb(), before + 60);
}

}  // namespace memory_test
}  // namespace lockstep::engine
