// SPDX-License-Identifier: BSD-3-Clause

#include <gtest/gtest.h>

#include "small_run.hpp"
#include "support/sentence.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace evaluation_test {

/// No sample at all.
class Nothing : public data::Dataset {
 public:
  explicit Nothing(Task task = {}) : task_(std::move(task)) {}
  std::int64_t size() const override { return 0; }
  Task task() const override { return task_; }
  std::uint64_t digest() const override { return 0; }
  batch::Batch get(std::span<const batch::Draw>) const override { return {}; }

 private:
  Task task_;
};

// 101 samples divide evenly among neither 2 nor 3 nor 4 ranks, nor into batches of 7.
TEST(EvaluationTest, EverySampleIsCountedOnceOnAnyNumberOfRanks) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings settings = {{"model.name", "mlp"}, {"data.val_size", "101"}, {"train.precision", "fp64"}};
  const mpi::Communicator self = world.split(world.rank());
  SmallRun alone(self, settings);
  const auto expected = evaluate(alone, *alone.splits.val, 101);
  SmallRun combined(world, settings);
  for (const std::int64_t batch : {1, 7, 200}) {
    const auto sums = evaluate(combined, *combined.splits.val, batch);
    EXPECT_EQ(sums.count, 101);
    EXPECT_EQ(sums.correct, expected.correct);
    EXPECT_NEAR(sums.mean_loss(), expected.mean_loss(), 1e-12 * expected.mean_loss());
  }
}

TEST(EvaluationTest, FewerSamplesThanRanksLeaveSomeRanksIdle) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.val_size", "2"}});
  EXPECT_EQ(evaluate(run, *run.splits.val, 5).count, 2);
}

// Batches of all ranks together, whatever their number.
TEST(EvaluationTest, TheNumberOfBatchesCanBeLimited) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.val_size", "40"}});
  metrics::Meters none;
  const auto first = evaluate(world, *run.model.wrapper, *run.splits.val, {7, 3}, none);
  EXPECT_EQ(first.count, 21);
  EXPECT_EQ(evaluate(world, *run.model.wrapper, *run.splits.val, {7, 30}, none).count, 40);
}

TEST(EvaluationTest, APartThatTheDataDoNotHaveIsNamed) {
  const data::Splits splits{.train = std::make_shared<Nothing>(), .test = std::make_shared<Nothing>()};
  EXPECT_EQ(&split_of(splits, {"test", "eval.split"}), splits.test.get());
  EXPECT_EQ(
      testing::sentence_of<ConfigError>([&] {
        split_of(splits, {"val", "eval.split (run.ini:3)"});
      }),
      "eval.split (run.ini:3): the data source has no split 'val'; choose another one, such as train, test, or set "
      "eval.every=never");
}

TEST(EvaluationTest, AnEmptyDataSetIsRefused) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.val_size", "8"}});
  EXPECT_EQ(testing::sentence_of<DataError>([&] { evaluate(run, Nothing(), 4); }), "there are no samples to evaluate");
}

/// Trains with digits, but without samples in one split.
void train_without(const std::string& empty, const std::string& folder, const Settings& settings) {
  Registry registry;
  registry.sources.push_back({.name = "empty", .help = "", .keys = {}, .open = [empty](const Section& data) {
                                data::Splits splits = data::builtin_sources().front().open(data);
                                (empty == "train" ? splits.train : splits.val) =
                                    std::make_shared<Nothing>(splits.train->task());
                                return splits;
                              }});
  const Sections sections = sections_of(with(kTwelveSteps, with({{"data.name", "empty"}}, settings)), registry);
  train(mpi::Communicator::world(), {.sections = sections,
                                     .registry = registry,
                                     .checkpoint_directory = folder,
                                     .config_ini = "",
                                     .environment_json = "{}",
                                     .reporter = [](const Record&) {},
                                     .on_start = [](std::int64_t, const auto&) { ADD_FAILURE() << "it has started"; },
                                     .hooks = {}});
}

TEST(EvaluationTest, AnEmptySplitIsRefusedBeforeTheFirstStep) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::TemporaryFolder own;
  const std::string folder = world.broadcast(own.path());
  const auto expect_refused = [&folder](const std::string& empty, const Settings& settings, const std::string& words) {
    const auto train_it = [&] { train_without(empty, folder, settings); };
    EXPECT_NE(testing::sentence_of<DataError>(train_it).find(words), std::string::npos) << words;
  };
  expect_refused("val", {}, "the split 'val' has no samples");
  expect_refused("val", {{"eval.every", "end"}}, "the split 'val' has no samples");
  for (const char* split : {"train", "val"}) {
    expect_refused("train", {{"eval.split", split}}, "data.name (test): there are no samples to train");
  }
  world.barrier();
}

TEST(EvaluationTest, TheModelTrainsOnAfterwards) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, {{"model.name", "mlp"}, {"data.val_size", "8"}});
  run.model.wrapper->model().train();
  evaluate(run, *run.splits.val, 4);
  EXPECT_TRUE(run.model.wrapper->model().is_training());
}

}  // namespace evaluation_test
}  // namespace lockstep::engine
