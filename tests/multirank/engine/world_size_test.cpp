// SPDX-License-Identifier: BSD-3-Clause
// The same run on 1, 2, 3 and 4 ranks has the same loss curve, whether or not the ranks' shares are equal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "small_run.hpp"

namespace lockstep::engine {
namespace world_size_test {

struct Case {
  const char* model;
  const char* global_batch;
  const char* precision;
};

std::vector<double> losses_on(const mpi::Communicator& ranks, const Case& c) {
  SmallRun run(ranks, {{"model.name", c.model},
                       {"train.global_batch_size", c.global_batch},
                       {"train.precision", c.precision},
                       {"train.max_steps", "100"},
                       {"data.workers", "0"},
                       {"optim.name", "sgd"},
                       {"optim.lr", "0.01"},
                       {"optim.momentum", "0.9"},
                       {"run.threads", "1"}});
  run.trainer.train();
  return run.losses;
}

double relative(double a, double b) { return std::abs(a - b) / std::abs(b); }

class WorldSizeTest : public ::testing::TestWithParam<Case> {};

TEST_P(WorldSizeTest, TheLossCurveIsThatOfOneRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() < 4) GTEST_SKIP() << "4 ranks run all world sizes";
  const bool is_fp64 = std::string(GetParam().precision) == "fp64";
  std::vector<double> alone;
  for (int size = 1; size <= 4; ++size) {
    const mpi::Communicator ranks = world.split(world.rank() < size ? 0 : 1);
    if (world.rank() >= size) continue;
    const std::vector<double> losses = losses_on(ranks, GetParam());
    EXPECT_EQ(losses.size(), 100U);
    if (size == 1) alone = losses;
    if (world.rank() != 0 || size == 1) continue;
    double first_ten = 0;
    double all = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double difference = relative(losses[i], alone[i]);
      if (i < 10) first_ten = std::max(first_ten, difference);
      all = std::max(all, difference);
    }
    std::printf("%d ranks: largest relative difference %.1e in 10 steps, %.1e in 100\n", size, first_ten, all);
    // Sums over samples are formed in another order. Once the rounding of fp32 lets a ReLU or a max-pool choose
    // otherwise, the curves separate: which step that is depends on the processor's kernels (seen from step 20 on).
    EXPECT_LE(first_ten, is_fp64 ? 1e-10 : 1e-5);
    if (is_fp64) {
      EXPECT_LE(all, 1e-10);
    } else {
      EXPECT_NEAR(losses.back(), alone.back(), 0.5 * alone.front());
    }
  }
  if (world.rank() == 0) {
    EXPECT_LT(alone.back(), 0.9 * alone.front());  // it did learn
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, WorldSizeTest,
                         ::testing::Values(Case{"mlp", "48", "fp64"}, Case{"mlp", "50", "fp64"},
                                           Case{"mlp", "48", "fp32"}, Case{"mlp", "50", "fp32"},
                                           Case{"cnn", "48", "fp64"}, Case{"cnn", "50", "fp64"},
                                           Case{"cnn", "48", "fp32"}, Case{"cnn", "50", "fp32"}),
                         [](const auto& test) {
                           return std::string(test.param.model) + test.param.global_batch + test.param.precision;
                         });

// fp32 parameters and sums, products in bfloat16: near the fp32 curve, and the same bits when repeated.
TEST(PrecisionTest, Bf16TrainsNearFp32) {
  const mpi::Communicator world = mpi::Communicator::world();
  const auto losses_in = [&world](const char* precision) {
    return losses_on(world, {.model = "mlp", .global_batch = "48", .precision = precision});
  };
  const std::vector<double> fp32 = losses_in("fp32");
  const std::vector<double> bf16 = losses_in("bf16");
  EXPECT_EQ(bf16, losses_in("bf16"));
  EXPECT_NE(bf16, fp32);
  for (std::size_t i = 0; i < fp32.size(); ++i) EXPECT_LE(relative(bf16[i], fp32[i]), 0.05) << "step " << i;
}

// Micro_batches only bound memory: the curve stays.
TEST(MicroBatchTest, TheLossCurveDoesNotDependOnMicroBatches) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings common = {{"model.name", "mlp"},      {"train.precision", "fp64"},
                           {"train.max_steps", "20"},  {"train.global_batch_size", "50"},
                           {"data.train_size", "200"}, {"run.threads", "1"}};
  SmallRun whole(world, common);
  whole.trainer.train();
  Settings settings = common;
  settings.emplace_back("train.micro_batch", "7");
  SmallRun parts(world, settings);
  EXPECT_GT(parts.trainer.view().data.layout().micro_batches, 1);
  parts.trainer.train();
  for (std::size_t i = 0; i < whole.losses.size(); ++i) EXPECT_LE(relative(parts.losses[i], whole.losses[i]), 1e-10);
}

/// Records the number of forward passes of each step on this rank.
class CountingHook : public Hook {
 public:
  explicit CountingHook(std::vector<std::int64_t>& counts) : counts_(&counts) {}
  void before_step(RunView&) override { counts_->push_back(0); }
  void on_forward(RunView&, const LastBatch& last) override {
    if (last.is_training) ++counts_->back();
  }

 private:
  std::vector<std::int64_t>* counts_;
};

// No rank runs out of data while others continue: an engine run needs no parallel::Join.
TEST(UnevenDataTest, AllRanksHaveTheSameNumberOfSteps) {
  const mpi::Communicator world = mpi::Communicator::world();
  const char* const samplers[] = {"default", "infinite", "torch"};
  for (const char* const sampler : samplers) {
    for (const char* const drop_last : {"true", "false"}) {
      for (const char* const samples : {"23", "25", "31"}) {
        for (const char* const micro_batch : {"0", "2", "3"}) {
          SmallRun run(world, {{"model.name", "mlp"},
                               {"model.hidden", "4"},
                               {"data.train_size", samples},
                               {"data.sampler", sampler},
                               {"data.drop_last", drop_last},
                               {"data.workers", "0"},
                               {"train.max_epochs", "2"},
                               {"train.global_batch_size", "7"},
                               {"train.micro_batch", micro_batch},
                               {"run.threads", "1"}});
          std::vector<std::int64_t> counts;
          run.trainer.add_hook(Priority::normal, std::make_unique<CountingHook>(counts));
          run.trainer.train();
          EXPECT_EQ(static_cast<std::int64_t>(counts.size()), run.trainer.progress().total_steps);
          for (const std::int64_t count : counts) {
            EXPECT_GE(count, 1) << sampler << ", drop_last=" << drop_last << ", " << samples
                                << " samples, micro_batch=" << micro_batch;
          }
        }
      }
    }
  }
}

// Stages 2 and 3 reduce and gather in every forward: 7 samples on 2 ranks are two micro-batches on both.
TEST(UnevenDataTest, ShardsTrainOnSharesThatDiffer) {
  const mpi::Communicator world = mpi::Communicator::world();
  const auto losses_with = [&world](const Settings& more) {
    SmallRun run(world, with({{"model.name", "mlp"},
                              {"model.hidden", "8"},
                              {"train.precision", "fp64"},
                              {"data.train_size", "70"},
                              {"data.workers", "0"},
                              {"train.max_steps", "6"},
                              {"train.global_batch_size", "7"},
                              {"train.micro_batch", "3"},
                              {"run.threads", "1"}},
                             more));
    run.trainer.train();
    return run.losses;
  };
  const std::vector<double> expected = losses_with({});
  for (const char* const stage : {"2", "3"}) {
    const std::vector<double> losses = losses_with({{"strategy.name", "sharded"}, {"strategy.stage", stage}});
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_LE(relative(losses[i], expected[i]), 1e-10);
  }
}

}  // namespace world_size_test
}  // namespace lockstep::engine
