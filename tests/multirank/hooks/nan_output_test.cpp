// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "checkpoints/foreign/foreign.hpp"
#include "hooked_run.hpp"

namespace lockstep::engine {
namespace nan_output_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NanOutputTest : public ::testing::Test {
 protected:
  HookedRun run_with(const std::string& hook) {
    return {world_, with_hook(hook, {{"run.dir", folder_.path()}, {"train.micro_batch", "2"}})};
  }
  bool is_last() const { return world_.rank() == world_.size() - 1; }
  /// How a failure of the last rank begins.
  std::string who() const { return world_.size() == 1 ? "" : "rank " + std::to_string(world_.size() - 1) + ": "; }

  /// A forward of the second micro_batch, or of an evaluation, gave this.
  static void show(HookedRun& run, const std::vector<float>& output, bool is_training = true) {
    RunView& view = run.trainer.view();
    batch::Batch batch{torch::arange(6).view({2, 3}).to(at::kFloat), torch::tensor({4, 5}, at::kLong)};
    if (is_training) batch.set_draws(view.data.draws_of(0, 1));
    run.hook().on_forward(
        view,
        {.is_training = is_training, .given = &batch, .batch = &batch, .outputs = torch::tensor(output).view({2, 2})});
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  CommonFolder folder_{world_};
};

TEST_F(NanOutputTest, FiniteOutputsPass) {
  HookedRun run = run_with("nan_output");
  show(run, {1, 2, 3, 4});
  EXPECT_EQ(run.trainer.train(), Outcome::done);
}

TEST_F(NanOutputTest, AllRanksHearOfTheSampleThatOneHasSeen) {
  HookedRun run = run_with("nan_output");
  show(run, {1, 2, 3, 4});
  const float fault = is_last() ? kNan : 4;
  show(run, {1, 2, 3, fault});
  std::vector<std::string> samples = world_.all_gather(
      std::to_string(run.trainer.view().data.draws_of(0, 1).at(1).index));  // the second micro_batch's second one
  const std::string file =
      folder_.path() + "/nan_output-step000000000001-rank0000" + std::to_string(world_.size() - 1) + ".safetensors";
  const std::string error = agreed_error_of<NumericError>(world_, [&] { run.trainer.train(); });
  EXPECT_EQ(error, who() + "the model's output is not finite at step 1 for 1 of 2 samples: samples " + samples.back() +
                       "; the batch is in " + file);
  world_.barrier();
  const checkpoints::Archive dump = checkpoints::read_foreign(file);
  EXPECT_EQ(dump.array("/batch.data").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(dump.array("/batch.label").dtype, DType::int64);
  float last = 0;
  std::memcpy(&last, dump.array("/output").bytes.data() + 3 * sizeof(float), sizeof last);
  EXPECT_TRUE(std::isnan(last));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(NanOutputTest, AnEvaluationIsLookedAtToo) {
  HookedRun run = run_with("nan_output,dump=false");
  const float fault = is_last() ? std::numeric_limits<float>::infinity() : 0;
  show(run, {fault, 2, 3, fault}, /*is_training=*/false);
  EXPECT_EQ(agreed_error_of<NumericError>(world_, [&] { run.hook().after_evaluation(run.trainer.view(), {}); }),
            who() +
                "the model's output is not finite in an evaluation after step 0 for 2 of 2 samples: positions in the "
                "batch 0, 1");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(NanOutputTest, AFileThatCannotBeWrittenIsNoOtherError) {
  HookedRun run(world_,
                with_hook("nan_output", {{"run.dir", folder_.path() + "/missing"}, {"train.micro_batch", "2"}}));
  show(run, {1, 2, 3, is_last() ? kNan : 4});
  EXPECT_NE(
      agreed_error_of<NumericError>(world_, [&] { run.trainer.train(); }).find("; the batch could not be written: "),
      std::string::npos);
}

}  // namespace nan_output_test
}  // namespace lockstep::engine
