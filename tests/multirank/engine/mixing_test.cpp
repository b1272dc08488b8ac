// SPDX-License-Identifier: BSD-3-Clause
// Mixed batches are the same on any number of ranks, with any number of loader threads, and after a resume.
#include <gtest/gtest.h>

#include "checkpoints/store/store.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace mixing_test {

/// The batches of a run: of each step the samples and targets of the global batch, in order.
using Seen = std::vector<std::string>;

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().cpu().contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

class SeeingHook : public Hook {
 public:
  SeeingHook(Seen& inputs, Seen& targets) : inputs_(&inputs), targets_(&targets) {}
  void before_step(RunView&) override {
    inputs_->emplace_back();
    targets_->emplace_back();
  }
  void on_loss(RunView&, const LastBatch& last) override {
    inputs_->back() += bytes_of(last.given->input());
    targets_->back() += bytes_of(last.given->target());
  }

 private:
  Seen* inputs_;
  Seen* targets_;
};

const Settings kMixed = {{"model.name", "cnn"},           {"model.channels", "4,8"},
                         {"loss.label_smoothing", "0.1"}, {"optim.lr", "0.01"},
                         {"train.mix", "mixup"},          {"train.mix", "cutmix,scope=elem,prob=0.9"},
                         {"train.mix_until", "0.8"},      {"train.global_batch_size", "24"},
                         {"train.max_steps", "10"},       {"data.train_size", "100"},
                         {"data.val_size", "10"}};

Seen seen_by(const mpi::Communicator& ranks, const Settings& settings, std::vector<double>* losses = nullptr) {
  SmallRun run(ranks, settings);
  Seen inputs;
  Seen targets;
  run.trainer.add_hook(Priority::high, std::make_unique<SeeingHook>(inputs, targets));
  run.trainer.train();
  if (losses != nullptr) *losses = run.losses;
  Seen seen;
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    seen.emplace_back();
    for (const std::string& part : ranks.all_gather(inputs[step])) seen.back() += part;
    for (const std::string& part : ranks.all_gather(targets[step])) seen.back() += part;
  }
  return seen;
}

TEST(MixingRunTest, AnyNumberOfRanksAndThreadsSeesTheSameBatches) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() < 4) GTEST_SKIP() << "4 ranks run all world sizes";
  Seen alone;
  std::vector<double> losses;
  for (int size = 1; size <= 4; ++size) {
    const mpi::Communicator ranks = world.split(world.rank() < size ? 0 : 1);
    if (world.rank() >= size) continue;
    for (int workers = 0; workers <= 3; ++workers) {
      const Settings settings = with(kMixed, {{"data.workers", std::to_string(workers)}, {"train.lanes", "4"}});
      std::vector<double> these;
      const Seen seen = seen_by(ranks, settings, &these);
      if (alone.empty()) {
        alone = seen;
        losses = these;
      }
      EXPECT_TRUE(seen == alone) << size << " ranks, " << workers << " threads";
      EXPECT_EQ(these, losses) << size << " ranks, " << workers << " threads";
    }
    EXPECT_TRUE(seen_by(ranks, with(kMixed, {{"train.micro_batch", "5"}})) == alone) << size << " ranks";
  }
  const mpi::Communicator self = world.split(world.rank());
  EXPECT_FALSE(seen_by(self, with(kMixed, {{"run.seed", "2"}})) == alone);
}

TEST(MixingRunTest, TheLastPartOfARunIsNotMixed) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() > 1) GTEST_SKIP() << "1 rank is enough";
  SmallRun run(world, kMixed);
  std::vector<bool> is_soft;
  std::vector<bool> has_major;
  class KindHook : public Hook {
   public:
    KindHook(std::vector<bool>& is_soft, std::vector<bool>& has_major) : is_soft_(&is_soft), has_major_(&has_major) {}
    void on_loss(RunView&, const LastBatch& last) override {
      is_soft_->push_back(last.batch->target().is_floating_point());
      has_major_->push_back(last.batch->has("major_label"));
    }

   private:
    std::vector<bool>* is_soft_;
    std::vector<bool>* has_major_;
  };
  run.trainer.add_hook(Priority::high, std::make_unique<KindHook>(is_soft, has_major));
  run.trainer.train();
  EXPECT_EQ(is_soft, (std::vector<bool>{true, true, true, true, true, true, true, true, false, false}));
  EXPECT_EQ(has_major, is_soft);
}

/// Writes a checkpoint in the middle of a run that continues.
class KeepHook : public Hook {
 public:
  KeepHook(Trainer& trainer, std::string folder) : trainer_(&trainer), folder_(std::move(folder)) {}
  void after_step(RunView& view, const StepReport& report) override {
    if (report.progress.step != 6) return;
    const checkpoints::Archive archive = capture(*trainer_, "", view.world.is_root());
    if (view.world.is_root()) checkpoints::write(folder_, 6, archive);
  }

 private:
  Trainer* trainer_;
  std::string folder_;
};

// Step 6 of 10 is inside the second epoch of 4 steps, and the run continues with mixed and then with plain batches.
TEST(MixingRunTest, AResumedRunContinuesBitForBit) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::TemporaryFolder folder;
  const std::string shared = world.broadcast(folder.path());
  const Settings settings = with(kMixed, {{"train.lanes", "4"}, {"loss.name", "bce"}});
  SmallRun run(world, settings);
  run.trainer.add_hook(Priority::very_low, std::make_unique<KeepHook>(run.trainer, shared));
  run.trainer.train();
  const checkpoints::Archive reached = capture(run.trainer, "", world.is_root());
  world.barrier();
  SmallRun resumed(world, settings);
  restore(resumed.trainer, checkpoints::read(shared + "/" + checkpoints::folder_name(6)));
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses, std::vector<double>(run.losses.begin() + 6, run.losses.end()));
  const checkpoints::Archive again = capture(resumed.trainer, "", world.is_root());
  if (world.is_root()) {
    EXPECT_EQ(testing::differences(again, reached), "");
  }
  world.barrier();
}

TEST(MixingRunTest, WhatCannotBeMixedIsRefusedOnEveryRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  const std::vector<std::pair<Settings, std::string>> cases = {
      {{{"train.mix", "cutmixx"}}, "train.mix (test): 'cutmixx' is unknown"},
      {{{"train.mix", "mixup,alpha=2,beta=3"}}, "train.mix (test)"},
      {{{"loss.name", "focall"}}, "loss.name (test): 'focall' is unknown"},
  };
  for (const auto& [settings, sentence] : cases) {
    try {
      SmallRun run(world, with(kTwelveSteps, settings));
      ADD_FAILURE() << "not refused: " << sentence;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find(sentence), 0U) << error.what();
      EXPECT_TRUE(error.is_agreed() || world.size() == 1) << error.what();
    }
  }
}

}  // namespace mixing_test
}  // namespace lockstep::engine
