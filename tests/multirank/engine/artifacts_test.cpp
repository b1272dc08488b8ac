// SPDX-License-Identifier: BSD-3-Clause
// Tables and images that evaluations leave on rank 0.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "small_run.hpp"

namespace lockstep::engine {
namespace artifacts_test {

/// The files that the writers of rank 0 find.
struct Found {
  std::vector<Table> tables;
  std::vector<Picture> images;
};

const Settings kTwoEvaluations =
    with(kTwelveSteps, {{"data.val_size", "20"}, {"eval.every", "6"}, {"log.pictures", "4"}});

Found found_in(SmallRun& run, bool has_writer) {
  Found found;
  run.trainer.add_hook(evaluate_hook(run.sections));
  if (has_writer && run.resources.world.is_root()) {
    run.trainer.add_hook(artifacts_hook([&found](EventStorage& events) {
      for (Table& table : events.take_tables()) found.tables.push_back(std::move(table));
      for (Picture& image : events.take_images()) found.images.push_back(std::move(image));
    }));
  }
  run.trainer.train();
  return found;
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

TEST(ArtifactsTest, EachEvaluationLeavesAConfusionMatrixAndPicturesOnRank0) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEvaluations);
  const Found found = found_in(run, true);
  if (!world.is_root()) return;
  ASSERT_EQ(found.tables.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found.tables[i].name, "val/confusion");
    EXPECT_EQ(found.tables[i].step, static_cast<std::int64_t>(6 * (i + 1)));
    EXPECT_EQ(found.tables[i].columns, 10U);
    EXPECT_EQ(sum_of(found.tables[i].values), 20) << "every sample of every rank";
  }
  double correct = 0;
  for (std::size_t i = 0; i < 10; ++i) correct += found.tables[1].values[11 * i];
  EXPECT_EQ(correct / 20, run.trainer.view().measured.values.at(1).second) << "val/accuracy";
  ASSERT_EQ(found.images.size(), 8U);
  EXPECT_EQ(found.images[7].name, "val/sample_03");
  EXPECT_EQ(found.images[7].step, 12);
  EXPECT_EQ(found.images[7].pixels.size(), 28U * 28 * 3);
  EXPECT_EQ(found.images[7].caption.substr(0, 1), "3") << "digits come in turn";
}

TEST(ArtifactsTest, NumbersOfEachClassOnRequest) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun usual(world, kTwoEvaluations);
  SmallRun run(world, with(kTwoEvaluations, {{"eval.per_class", "true"}, {"eval.metrics", "overlap"}}));
  found_in(usual, true);
  found_in(run, true);
  std::map<std::string, double> values;
  for (const auto& [name, value] : run.trainer.view().measured.values) values[name] = value;
  double sum = 0;
  for (int c = 0; c < 10; ++c) sum += values.at("val/accuracy/" + std::to_string(c));
  EXPECT_NEAR(sum / 10, values.at("val/accuracy"), 1e-12) << "each digit occurs twice";
  EXPECT_TRUE(values.contains("val/iou/3"));
  EXPECT_EQ(usual.losses, run.losses);
  for (const auto& [name, value] : usual.trainer.view().measured.values)
    EXPECT_FALSE(name.starts_with("val/accuracy/"));
}

TEST(ArtifactsTest, ARequestedMatrixIsTheSameAndNotReportedTwice) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun silent(world, kTwoEvaluations);
  SmallRun asked(world, with(kTwoEvaluations, {{"eval.metrics", "confusion"}, {"eval.metrics", "overlap"}}));
  const Found of_silent = found_in(silent, true);
  const Found of_asked = found_in(asked, true);
  EXPECT_EQ(silent.losses, asked.losses);
  if (!world.is_root()) return;
  ASSERT_EQ(of_asked.tables.size(), 2U * 4);
  EXPECT_EQ(of_asked.tables[0].name, "val/confusion");
  EXPECT_EQ(of_asked.tables[1].name, "val/iou");
  EXPECT_EQ(of_asked.tables[4].values, of_silent.tables[1].values);
}

TEST(ArtifactsTest, NothingIsKeptWhereNobodyLooks) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kTwoEvaluations);
  found_in(run, false);
  EXPECT_TRUE(run.trainer.view().events.take_images().empty());
  EXPECT_TRUE(run.trainer.view().events.take_tables().empty());
  SmallRun without(world, with(kTwoEvaluations, {{"log.pictures", "0"}}));
  EXPECT_TRUE(found_in(without, true).images.empty());
}

// Looking at values leaves no trace in the numbers.
TEST(ArtifactsTest, PicturesChangeNoBitOfTheTraining) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun with_pictures(world, kTwoEvaluations);
  SmallRun without(world, kTwoEvaluations);
  found_in(with_pictures, true);
  found_in(without, false);
  EXPECT_EQ(with_pictures.losses, without.losses);
  EXPECT_EQ(with_pictures.trainer.view().measured.values, without.trainer.view().measured.values);
}

}  // namespace artifacts_test
}  // namespace lockstep::engine
