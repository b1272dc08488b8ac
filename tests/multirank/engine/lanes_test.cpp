// SPDX-License-Identifier: BSD-3-Clause
// With lanes, a run has the same bits on any number of ranks: losses, gradient norms, parameters, buffers, metrics.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "parallel/store/tensor_collectives.hpp"
#include "small_run.hpp"
#include "support/sampling.hpp"

namespace lockstep::engine {
namespace lanes_test {

/// Everything that must not depend on the number of ranks.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  double evaluation = 0;
  std::string values;  // values of all parameters and buffers

  bool operator==(const Outcome&) const = default;
};

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

Outcome outcome_of(SmallRun& run) {
  Outcome outcome;
  outcome.losses = run.losses;
  outcome.norms = run.norms;
  outcome.evaluation = evaluate(run, *run.trainer.view().data.splits().val, 16).mean_loss();
  for (const auto& parameter : run.model.wrapper->model().parameters()) outcome.values += bytes_of(parameter);
  for (const auto& buffer : run.model.wrapper->model().buffers()) outcome.values += bytes_of(buffer);
  return outcome;
}

struct Case {
  const char* name;
  Settings settings;
  Settings combined = {};  // combined: what several ranks have beside
};

Settings common(const char* steps) {
  return {{"train.global_batch_size", "24"}, {"train.lanes", "8"}, {"train.max_steps", steps}, {"data.workers", "0"}};
}

/// The long run has the steps of the promise, the short one enough to tell.
const char* steps() { return testing::is_long_run() ? "200" : "12"; }

const Settings kDigits = {{"data.train_size", "200"}, {"data.val_size", "50"}};
const Settings kCnn = with(kDigits, {{"model.name", "cnn"}, {"model.channels", "4,8"}, {"model.dropout", "0.2"}});
const Settings kResnet = with(kDigits, {{"model.name", "resnet18"}, {"model.width", "8"}});

/// A small gpt with dropout, over text that every rank can read.
Settings gpt() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return {{"data.name", "text"},     {"data.path", std::string(source != nullptr ? source : ".") + "/README.md"},
          {"data.block", "16"},      {"model.name", "gpt"},
          {"model.depth", "2"},      {"model.num_heads", "2"},
          {"model.embed_dim", "32"}, {"model.dropout", "0.1"}};
}

class LanesTest : public ::testing::TestWithParam<Case> {};

TEST_P(LanesTest, AnyNumberOfRanksGivesTheSameBits) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() < 4) GTEST_SKIP() << "4 ranks run all world sizes";
  Outcome alone;
  for (int size = 1; size <= 4; ++size) {
    const mpi::Communicator ranks = world.split(world.rank() < size ? 0 : 1);
    if (world.rank() >= size) continue;
    Settings settings = GetParam().settings;
    if (size > 1) settings = with(settings, GetParam().combined);
    SmallRun run(ranks, settings);
    run.trainer.train();
    const Outcome outcome = outcome_of(run);
    if (size == 1) alone = outcome;
    if (world.rank() != 0) continue;
    EXPECT_EQ(outcome.losses, alone.losses) << size << " ranks";
    EXPECT_EQ(outcome.norms, alone.norms) << size << " ranks";
    EXPECT_EQ(outcome.evaluation, alone.evaluation) << size << " ranks";
    EXPECT_TRUE(outcome.values == alone.values) << size << " ranks";
  }
  if (world.rank() == 0) {
    EXPECT_NE(alone.losses.front(), alone.losses.back());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LanesTest,
    ::testing::Values(
        Case{"cnn", with(common(steps()), kCnn)},
        Case{"cnnClipped", with(with(common(steps()), kCnn), {{"train.clip_norm", "0.5"}})},
        Case{"cnnPrivate", with(with(common(steps()), kCnn), {{"ddp.shared_parameters", "false"}})},
        Case{"cnnSgd", with(with(common(steps()), kCnn), {{"optim.name", "sgd"}, {"optim.momentum", "0.9"}})},
        Case{"cnnMpi", with(common(steps()), kCnn), {{"comm.backend", "mpi"}}},
        Case{"cnnHierarchical", with(common(steps()), kCnn), {{"comm.backend", "hierarchical"}, {"comm.hosts", "2"}}},
        Case{"cnnSharded", with(with(common(steps()), kCnn), {{"strategy.name", "sharded"}, {"strategy.stage", "1"}})},
        Case{"gptShardedLamb", with(with(common(steps()), gpt()), {{"strategy.name", "sharded"},
                                                                   {"strategy.stage", "1"},
                                                                   {"optim.name", "lamb"},
                                                                   {"train.clip_norm", "0.5"}})},
        Case{"gpt", with(common(steps()), gpt())},
        Case{"uneven", with(with(common(steps()), kCnn), {{"train.lanes", "6"}})},
        Case{"resnet18",
             with(with(common("2"), kResnet), {{"train.global_batch_size", "8"}, {"data.val_size", "20"}})}),
    [](const auto& test) { return std::string(test.param.name); });

// Without lanes the same settings do differ: the test above can fail.
TEST(WithoutLanesTest, BitsDependOnTheNumberOfRanks) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() != 3) GTEST_SKIP() << "3 ranks are enough";
  const Settings settings = with(with(common("12"), kCnn), {{"train.lanes", "0"}});
  const mpi::Communicator self = world.split(world.rank());
  SmallRun combined(world, settings);
  combined.trainer.train();
  SmallRun alone(self, settings);
  alone.trainer.train();
  EXPECT_NE(combined.losses, alone.losses);
}

TEST(LanesErrorsTest, WhatDoesNotFitIsRefusedInOneSentence) {
  const mpi::Communicator world = mpi::Communicator::world();
  const auto refusal = [&world](const Settings& more) {
    try {
      SmallRun run(world, with(common("1"), more));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal({{"train.lanes", "7"}}).find("24 samples (train.global_batch_size) cannot be divided into 7 lanes"),
            std::string::npos);
  EXPECT_NE(refusal({{"train.micro_batch", "1"}}).find("train.micro_batch"), std::string::npos);
  EXPECT_NE(refusal({{"ddp.sync_batch_norm", "true"}}).find("each lane is normalized by its own statistics"),
            std::string::npos);
  if (world.size() > 1) {
    EXPECT_NE(refusal({{"train.lanes", "1"}}).find("1 lanes are not enough for"), std::string::npos);
  }
}

}  // namespace lanes_test
}  // namespace lockstep::engine
