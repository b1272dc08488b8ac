// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/hooks/hook_rows.hpp"
#include "hooked_run.hpp"

namespace lockstep::engine {
namespace empty_cache_test {

// 12 steps in epochs of 4; an evaluation is notified by hand.
std::vector<std::int64_t> steps_of(const EmptyCacheTimes& times) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"data.train_size", "48"}}));
  std::vector<std::int64_t> steps;
  auto hook = empty_cache_hook_at(times, [&steps](RunView& view) { steps.push_back(view.progress.step); });
  Hook& added = *hook;
  run.trainer.add_hook(Priority::normal, std::move(hook));
  run.trainer.train();
  added.after_evaluation(run.trainer.view(), Measured{});
  return steps;
}

TEST(EmptyCacheTest, MemoryIsReturnedAtTheChosenTimes) {
  const std::vector<std::int64_t> at_the_end = {12};
  EXPECT_EQ(steps_of({}), (std::vector<std::int64_t>{4, 8, 12, 12}));
  EXPECT_EQ(steps_of({.every = 5, .is_after_evaluations = false}), (std::vector<std::int64_t>{5, 10}));
  EXPECT_EQ(steps_of({.every = Every({.steps = 5, .epochs = 1}), .is_after_evaluations = false}),
            (std::vector<std::int64_t>{4, 5, 8, 10, 12}));
  EXPECT_EQ(steps_of({.every = 0}), at_the_end);
  EXPECT_TRUE(steps_of({.every = 0, .is_after_evaluations = false}).empty());
}

TEST(EmptyCacheTest, ChangesNothingOnACpu) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun plain(world, kTwelveSteps);
  plain.trainer.train();
  HookedRun run(world, with_hook("empty_cache,every=1"));
  ASSERT_EQ(run.chosen.size(), 1U);
  run.trainer.train();
  EXPECT_EQ(run.losses, plain.losses);
}

}  // namespace empty_cache_test
}  // namespace lockstep::engine
