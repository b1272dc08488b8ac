// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/types.h>

#include "hooked_run.hpp"

namespace lockstep::engine {
namespace sync_buffers_test {

TEST(SyncBuffersTest, AveragesWhatRanksHaveOnceForEachStep) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Registry registry = registry_with_normed();
  HookedRun run(world, with_hook("sync_buffers", {{"model.name", "normed"}}), registry);
  models::BatchNorm& norm = *dynamic_cast<Normed&>(run.model.wrapper->model()).norm;
  const auto set = [&] { norm.running_mean.fill_(2 * world.rank()); };
  const auto mean = [&] { return norm.running_mean[5].item<double>(); };
  const double own = 2 * world.rank();
  const double average = world.size() - 1;  // average of 0, 2, ..., 2 (W - 1)
  set();
  run.hook().before_step(run.trainer.view());
  EXPECT_EQ(mean(), own);
  run.hook().before_evaluation(run.trainer.view());
  EXPECT_EQ(mean(), average);
  set();
  run.hook().after_epoch(run.trainer.view());  // no step since then
  EXPECT_EQ(mean(), own);
  run.trainer.run().resume_at(1, 0, 12, 12);
  run.hook().after_epoch(run.trainer.view());
  EXPECT_EQ(mean(), average);
}

}  // namespace sync_buffers_test
}  // namespace lockstep::engine
