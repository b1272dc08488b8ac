// SPDX-License-Identifier: BSD-3-Clause
#include "engine/data_moments.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/source/measured.hpp"
#include "small_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace data_moments_test {

/// Sample i has the inputs i and 5 and the target 2 i.
class Numbers : public data::SampleDataset {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  Task task() const override { return {.sample_shape = {2}, .classes = 1, .kind = TaskKind::regression}; }
  std::uint64_t digest() const override { return 1; }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const auto number = static_cast<double>(draw.index);
    return {{"data", torch::tensor({number, 5.0}, at::kDouble)}, {"label", torch::tensor({2 * number}, at::kDouble)}};
  }

 private:
  std::int64_t size_;
};

Section mlp_keys_with(const char* standardize) {
  Section model = Section::with_defaults("model", models::model_keys());
  model.set("name", "mlp", "test");
  model.set("standardize", standardize, "test");
  return model;
}

// The theory: the variance of 0 .. n - 1 is (n^2 - 1) / 12. Fewer samples than parts of the data, and more.
TEST(DataMomentsTest, AreThoseOfAllSamplesOnAnyNumberOfRanks) {
  const mpi::Communicator world(MPI_COMM_WORLD);
  const mpi::Communicator alone(MPI_COMM_SELF);
  for (const std::int64_t size : {5, 1001}) {
    const Task task = training_task(world, mlp_keys_with("true"), Numbers(size));
    const auto n = static_cast<double>(size);
    const double deviation = std::sqrt((n * n - 1) / 12);
    ASSERT_EQ(task.input_moments.mean.size(), 2U);
    EXPECT_NEAR(task.input_moments.mean[0], (n - 1) / 2, 1e-12 * n);
    EXPECT_NEAR(task.input_moments.deviation[0], deviation, 1e-12 * n);
    EXPECT_EQ(task.input_moments.mean[1], 5);
    EXPECT_EQ(task.input_moments.deviation[1], 1);
    ASSERT_EQ(task.target_moments.mean.size(), 1U);
    EXPECT_NEAR(task.target_moments.deviation[0], 2 * deviation, 1e-12 * n);
    const Task same = training_task(alone, mlp_keys_with("true"), Numbers(size));
    EXPECT_EQ(task.input_moments.mean, same.input_moments.mean);
    EXPECT_EQ(task.input_moments.deviation, same.input_moments.deviation);
    EXPECT_EQ(task.target_moments.deviation, same.target_moments.deviation);
  }
  EXPECT_TRUE(training_task(world, mlp_keys_with("false"), Numbers(5)).input_moments.mean.empty());
}

/// Part i has the numbers i and 1 / (i + 1); the mean of the first input is the sum of the latter, part by part.
class Parts : public Numbers, public data::MeasuredDataset {
 public:
  explicit Parts(std::string cache) : Numbers(3), cache_(std::move(cache)) {}

  std::int64_t parts() const override { return 7; }
  std::int64_t numbers_per_part() const override { return 2; }
  std::vector<double> measure(std::int64_t part) const override {
    ++measured_;
    if (part == broken_) throw DataError("parts", "is broken");
    const auto number = static_cast<double>(part);
    return {number, 1 / (number + 1)};
  }
  data::MeasuredTask result(const std::vector<std::vector<double>>& parts) const override {
    double sum = 0;
    for (const std::vector<double>& part : parts) sum += part[1];
    data::MeasuredTask measured{.task = task(), .json = std::to_string(parts.size())};
    measured.task.input_moments.mean = {sum, parts.back()[0]};
    return measured;
  }
  std::string cache_path() const override { return cache_; }

  int measured() const { return measured_; }
  void break_part(std::int64_t part) { broken_ = part; }

 private:
  std::string cache_;
  std::int64_t broken_ = -1;
  mutable int measured_ = 0;
};

TEST(DataMomentsTest, PartsAreSharedByTheRanks) {
  const mpi::Communicator world(MPI_COMM_WORLD);
  const Parts train("");
  std::string json;
  const Task task = training_task(world, mlp_keys_with("false"), train, &json);
  double sum = 0;
  for (int i = 0; i < 7; ++i) sum += 1.0 / (i + 1);
  EXPECT_EQ(task.input_moments.mean, (std::vector<double>{sum, 6}));
  EXPECT_EQ(json, "7");
  EXPECT_EQ(train.measured(), (7 - world.rank() + world.size() - 1) / world.size());
}

TEST(DataMomentsTest, PartsOfAnInterruptedRunAreKept) {
  const mpi::Communicator world(MPI_COMM_WORLD);
  std::optional<testing::TemporaryFolder> folder;
  if (world.is_root()) folder.emplace();
  const std::string cache = world.broadcast(folder ? folder->path("numbers") : "");
  Parts broken(cache);
  broken.break_part(6);
  EXPECT_THROW(training_task(world, mlp_keys_with("false"), broken), DataError);
  const Parts second(cache);
  const Task task = training_task(world, mlp_keys_with("false"), second);
  EXPECT_LE(second.measured(), 1);  // the broken part only
  const Parts third(cache);
  EXPECT_EQ(training_task(world, mlp_keys_with("false"), third).input_moments.mean, task.input_moments.mean);
  EXPECT_EQ(third.measured(), 0);
  world.barrier();
}

}  // namespace data_moments_test
}  // namespace lockstep::engine
