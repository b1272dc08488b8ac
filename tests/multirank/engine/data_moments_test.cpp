// SPDX-License-Identifier: BSD-3-Clause
#include "engine/data_moments.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "small_run.hpp"

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

}  // namespace data_moments_test
}  // namespace lockstep::engine
