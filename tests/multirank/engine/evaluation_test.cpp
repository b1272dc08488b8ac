// SPDX-License-Identifier: BSD-3-Clause

#include <gtest/gtest.h>

#include "small_run.hpp"

namespace lockstep::engine {
namespace evaluation_test {

// 101 samples divide evenly among neither 2 nor 3 nor 4 ranks, nor into batches of 7.
TEST(EvaluationTest, EverySampleIsCountedOnceOnAnyNumberOfRanks) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings settings = {{"model.name", "mlp"}, {"data.test_size", "101"}, {"train.precision", "fp64"}};
  const mpi::Communicator self = world.split(world.rank());
  SmallRun alone(self, settings);
  const auto expected = evaluate(alone.strategy, *alone.splits.test, 101);
  SmallRun together(world, settings);
  for (const std::int64_t batch : {1, 7, 200}) {
    const auto sums = evaluate(together.strategy, *together.splits.test, batch);
    EXPECT_EQ(sums.count, 101);
    EXPECT_EQ(sums.correct, expected.correct);
    EXPECT_NEAR(sums.loss, expected.loss, 1e-10 * expected.loss);
  }
}

TEST(EvaluationTest, FewerSamplesThanRanksLeaveSomeRanksIdle) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.test_size", "2"}});
  EXPECT_EQ(evaluate(run.strategy, *run.splits.test, 5).count, 2);
}

TEST(EvaluationTest, TheModelTrainsOnAfterwards) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.test_size", "8"}});
  run.strategy.model().model().train();
  evaluate(run.strategy, *run.splits.test, 4);
  EXPECT_TRUE(run.strategy.model().model().is_training());
}

}  // namespace evaluation_test
}  // namespace lockstep::engine
