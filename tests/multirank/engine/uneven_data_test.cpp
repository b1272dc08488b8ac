// SPDX-License-Identifier: BSD-3-Clause
// Runs of `trainer` do not need parallel::Join: every rank has the same number of steps, whatever the number of
// samples.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "small_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace uneven_data_test {

/// Counts the forward passes and samples of each step on this rank.
class BatchesHook : public Hook {
 public:
  struct Step {
    std::int64_t passes = 0;
    std::int64_t samples = 0;
  };
  explicit BatchesHook(std::vector<Step>& steps) : steps_(&steps) {}
  void before_step(RunView&) override { steps_->emplace_back(); }
  void on_forward(RunView&, const LastBatch& last) override {
    if (!last.is_training) return;
    ++steps_->back().passes;
    steps_->back().samples += last.batch->input().size(0);
  }

 private:
  std::vector<Step>* steps_;
};

using Steps = std::vector<BatchesHook::Step>;

struct CountedRun : SmallRun {
  CountedRun(const mpi::Communicator& world, const Settings& settings) : SmallRun(world, settings) {
    trainer.add_hook(Priority::normal, std::make_unique<BatchesHook>(steps));
  }
  Steps steps;
};

/// The same on every rank. Collective.
void expect_equal_batches(const mpi::Communicator& ranks, const Steps& steps, std::int64_t expected_steps,
                          std::int64_t global_batch, bool has_equal_passes) {
  EXPECT_EQ(static_cast<std::int64_t>(steps.size()), expected_steps);
  std::string counts;
  for (const auto& step : steps) counts += std::to_string(step.passes) + " ";
  const std::vector<std::string> all = ranks.all_gather(counts);
  for (const auto& step : steps) {
    EXPECT_GE(step.passes, 1);
    const std::int64_t samples = ranks.all_reduce(step.samples, mpi::Op::sum);
    EXPECT_GE(samples, ranks.size());
    EXPECT_LE(samples, global_batch);
  }
  for (const std::string& other : all) {
    EXPECT_EQ(std::count(other.begin(), other.end(), ' '), expected_steps);
    if (has_equal_passes) {
      EXPECT_EQ(other, counts);
    }
  }
}

class JoinIsUnnecessaryTest : public ::testing::Test {
 protected:
  JoinIsUnnecessaryTest() : shared_(world_.broadcast(folder_.path())) {}
  ~JoinIsUnnecessaryTest() override { world_.barrier(); }

  /// Trains on 1 to all ranks, each time from the beginning and from step `kSaved` of a run on all ranks.
  void expect_steps(const Settings& settings, bool has_equal_passes) {
    const std::string folder = shared_ + "/" + std::to_string(++cases_);
    CountedRun first(world_, with(settings, {{"train.max_steps", std::to_string(kSaved)}}));
    first.trainer.train();
    expect_equal_batches(world_, first.steps, kSaved, kGlobalBatch, has_equal_passes);
    const checkpoints::Archive state = capture(first.trainer, "", world_.is_root());
    if (world_.is_root()) checkpoints::write(folder, kSaved, state);
    world_.barrier();
    const checkpoints::Archive saved = checkpoints::read(checkpoints::checkpoint_of(folder, kSaved));
    for (int size = 1; size <= world_.size(); ++size) {
      const mpi::Communicator ranks = world_.split(world_.rank() < size ? 0 : 1);
      if (world_.rank() < size) {
        CountedRun whole(ranks, settings);
        whole.trainer.train();
        const std::int64_t total = whole.trainer.progress().total_steps;
        expect_equal_batches(ranks, whole.steps, total, kGlobalBatch, has_equal_passes);
        CountedRun resumed(ranks, settings);
        restore(resumed.trainer, saved);
        resumed.trainer.train();
        EXPECT_EQ(resumed.trainer.progress().step, total);
        expect_equal_batches(ranks, resumed.steps, total - kSaved, kGlobalBatch, has_equal_passes);
      }
      world_.barrier();
    }
  }

  static constexpr std::int64_t kSaved = 2;  // step of the checkpoint, in the middle of the first epoch
  static constexpr std::int64_t kGlobalBatch = 7;
  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
  int cases_ = 0;
};

const Settings kBase = {{"model.name", "mlp"},
                        {"model.hidden", "4"},
                        {"data.workers", "0"},
                        {"train.max_epochs", "2"},
                        {"train.global_batch_size", "7"},
                        {"run.threads", "1"}};

TEST_F(JoinIsUnnecessaryTest, RanksHaveEqualNumbersOfStepsForAnyNumberOfSamples) {
  for (const char* const sampler : {"default", "torch"}) {
    for (const char* const drop_last : {"true", "false"}) {
      for (const char* const samples : {"22", "23", "27", "28", "29"}) {
        SCOPED_TRACE(std::string(sampler) + ", drop_last=" + drop_last + ", " + samples + " samples");
        expect_steps(with(kBase, {{"data.train_size", samples},
                                  {"data.sampler", sampler},
                                  {"data.drop_last", drop_last},
                                  {"train.micro_batch", "2"}}),
                     /*has_equal_passes=*/false);
      }
    }
  }
}

// They also have equal numbers of these where ranks communicate in forward and backward passes.
TEST_F(JoinIsUnnecessaryTest, RanksHaveEqualNumbersOfPassesWhereTheyCommunicateInThem) {
  for (const Settings& more :
       {Settings{{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
        Settings{{"strategy.name", "sharded"}, {"strategy.stage", "3"}}, Settings{{"ddp.sync_batch_norm", "true"}}}) {
    for (const char* const samples : {"23", "28"}) {
      SCOPED_TRACE(more.front().first + ", " + samples + " samples");
      expect_steps(with(with(kBase, more), {{"data.train_size", samples}, {"train.micro_batch", "2"}}),
                   /*has_equal_passes=*/true);
    }
  }
}

}  // namespace uneven_data_test
}  // namespace lockstep::engine
