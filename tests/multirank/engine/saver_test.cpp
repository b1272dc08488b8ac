// SPDX-License-Identifier: BSD-3-Clause
// Saving while training continues: what is written, and what becomes of a save that fails.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <random>
#include <span>

#include "engine/resume/resume.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/saving/checkpoint_saver.hpp"
#include "engine/saving/local_copies.hpp"
#include "engine/saving/memory_copies.hpp"
#include "engine/saving/replicas.hpp"
#include "engine/session.hpp"
#include "parallel/store/parameter_store.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace saver_test {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

const Settings kBase = with(kTwelveSteps, {{"ckpt.every", "never"}});

class SaverTest : public ::testing::Test {
 protected:
  SaverTest() { shared_ = world_.broadcast(folder_.path()); }
  ~SaverTest() override { world_.barrier(); }

  /// Trains with checkpoints in `name`, as the settings say.
  std::string train(const std::string& name, const Settings& settings) {
    SmallRun run(world_, with(kBase, settings));
    const std::string directory = shared_ + "/" + name;
    run.trainer.add_hook(run.checkpoint_hook(directory, "config"));
    run.trainer.train();
    world_.barrier();
    return directory;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
};

// A copy is written while the originals change: it must be of the step it is named after.
TEST_F(SaverTest, EveryWayOfSavingWritesTheSameState) {
  const Settings every = {{"ckpt.every", "3"}, {"ckpt.keep_last", "9"}};
  const std::string sync = train("sync", with(every, {{"ckpt.async", "false"}}));
  const std::string async = train("async", every);
  const std::string sharded = train("sharded", with(every, {{"ckpt.layout", "shards"}, {"ckpt.writers", "3"}}));
  const std::string single = train("single", with(every, {{"ckpt.layout", "file"}}));
  if (!world_.is_root()) return;
  ASSERT_EQ(checkpoints::list(sync), (Steps{3, 6, 9, 12}));
  for (const std::string& other : {async, sharded, single}) {
    ASSERT_EQ(checkpoints::list(other), (Steps{3, 6, 9, 12})) << other;
    for (const std::int64_t step : {3, 6, 9, 12}) {
      EXPECT_EQ(testing::differences(checkpoints::read(checkpoints::checkpoint_of(sync, step)),
                                     checkpoints::read(checkpoints::checkpoint_of(other, step))),
                "")
          << other << " at " << step;
    }
  }
  EXPECT_FALSE(fs::exists(sync + "/LEASE"));
}

/// Keeps the latest copy in memory of a step as the archive that a run would resume from.
class CopyReader : public Hook {
 public:
  CopyReader(std::int64_t step, std::string directory, checkpoints::Archive& copy)
      : Hook(HookReads::nothing()), step_(step), directory_(std::move(directory)), copy_(&copy) {}
  void between_steps(RunView& run, const StepReport&) override {
    if (run.progress.step != step_) return;
    const auto path = memory_candidate(run.world, directory_);
    ASSERT_TRUE(path);
    *copy_ = checkpoints::read(*path);
  }

 private:
  std::int64_t step_;
  std::string directory_;
  checkpoints::Archive* copy_;
};

// The ranks that share the parameters write a part each.
TEST_F(SaverTest, CopiesInMemoryHaveTheSameState) {
  const std::vector<Settings> ways = {{}, {{"ddp.shared_parameters", "false"}}, {{"strategy.name", "sharded"}}};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    SmallRun run(world_, with(with(kBase, ways[way]),
                              {{"ckpt.every", "3"}, {"ckpt.keep_last", "9"}, {"ckpt.memory_every", "2"}}));
    const std::string directory = shared_ + "/" + std::to_string(way);
    const std::string id = "test" + std::to_string(way) + fs::path(shared_).filename().string();
    checkpoints::Archive copy;
    run.trainer.add_hook(run.checkpoint_hook(directory, ""));
    run.trainer.add_hook(memory_copies_hook(
        SavingSettings::from(run.sections.at("ckpt")), directory, [id] { return id; },
        [&run](bool is_writer) { return capture(run.trainer, "", is_writer); }));
    run.trainer.add_hook(Priority::lowest, std::make_unique<CopyReader>(6, directory, copy));
    run.trainer.train();
    EXPECT_EQ(testing::differences(copy, checkpoints::read(checkpoints::checkpoint_of(directory, 6))), "") << way;
    world_.barrier();
    EXPECT_FALSE(fs::exists(memory_folder(id))) << way;
    EXPECT_FALSE(fs::exists(directory + "/COPIES")) << way;
  }
}

// The ranks agree on the steps: they are chosen by the time that copies take, which is another one on each rank.
TEST_F(SaverTest, TheIntervalOfCopiesIsChosenForAllRanks) {
  SmallRun run(world_, with(kBase, {{"train.max_steps", "60"}, {"ckpt.memory_every", "auto"}}));
  const std::string directory = shared_ + "/run";
  const std::string id = "auto" + fs::path(shared_).filename().string();
  int copies = 0;
  checkpoints::Archive copy;
  run.trainer.add_hook(run.checkpoint_hook(directory, ""));
  run.trainer.add_hook(memory_copies_hook(
      SavingSettings::from(run.sections.at("ckpt")), directory, [id] { return id; },
      [&](bool is_writer) {
        ++copies;
        return capture(run.trainer, "", is_writer);
      }));
  run.trainer.add_hook(Priority::lowest, std::make_unique<CopyReader>(10, directory, copy));
  run.trainer.train();
  EXPECT_EQ(copy.integer("/", "step"), 10);
  EXPECT_GE(copies, 2);
  EXPECT_LE(copies, 51);
  const std::string mine = std::to_string(copies);
  for (const std::string& other : world_.all_gather(mine)) EXPECT_EQ(other, mine);
}

TEST_F(SaverTest, WhatIsShardedResumesLikeAnyOther) {
  const Settings sharded = {{"ckpt.layout", "shards"}, {"ckpt.writers", "2"}, {"ckpt.every", "5"}};
  const std::string directory = train("run", with(sharded, {{"train.max_steps", "7"}}));
  SmallRun straight(world_, kBase);
  straight.trainer.train();
  SmallRun resumed(world_, with(kBase, {{"resume", "auto"}}));
  EXPECT_EQ(load_or_resume(resumed, directory), directory + "/step-000000000007");
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 7, straight.losses.end()));
}

// A folder where nothing can be made any more stands for a disk that is full or gone.
TEST_F(SaverTest, AFailedSaveIsTriedAgainAndOnlyManyInARowEndTheRun) {
  const std::string directory = shared_ + "/ckpt";
  const auto capture_nothing = [] { return checkpoints::Archive(); };
  SaverOptions options{.directory = directory, .max_failures = 3};
  CheckpointSaver saver(world_, options);
  saver.save_now(1, capture_nothing);
  EXPECT_EQ(saver.saved_step(), 1);
  const auto block = [&] {
    world_.barrier();
    if (world_.is_root()) {
      fs::rename(directory, directory + ".away");
      testing::write_file(directory, "a file in the way");
    }
    world_.barrier();
  };
  const auto unblock = [&] {
    world_.barrier();
    if (world_.is_root()) {
      fs::remove(directory);
      fs::rename(directory + ".away", directory);
    }
    world_.barrier();
  };
  const auto fail_once = [&](std::int64_t step) {
    saver.save(step, false, capture_nothing);
    while (saver.is_busy()) saver.poll();
  };
  block();
  fail_once(2);
  fail_once(3);
  EXPECT_EQ(saver.saved_step(), 1);  // and the run continues
  unblock();
  fail_once(4);  // does not fail now: the count begins again
  EXPECT_EQ(saver.saved_step(), 4);
  block();
  fail_once(5);
  fail_once(6);
  try {
    fail_once(7);
    ADD_FAILURE() << "three in a row did not end the run";
  } catch (const CheckpointError& error) {
    EXPECT_TRUE(error.is_agreed());
    EXPECT_NE(std::string(error.what()).find("ckpt.max_failures = 3 consecutive saves failed"), std::string::npos);
  }
  unblock();
  if (world_.is_root()) {
    EXPECT_EQ(checkpoints::list(directory), (Steps{1, 4}));
  }
}

TEST_F(SaverTest, TheLocalDiskHoldsACheckpointOnlyUntilItIsCopied) {
  const Settings every = {{"ckpt.every", "3"}, {"ckpt.keep_last", "9"}};
  const std::string direct = train("direct/ckpt", every);
  for (const char* layout : {"folder", "file"}) {
    const std::string name = layout;
    const std::string local = shared_ + "/local-" + name;
    const std::string copied = train(
        name + "/ckpt", with(every, {{"ckpt.local_dir", local}, {"ckpt.layout", layout}, {"ckpt.verify_every", "1"}}));
    if (!world_.is_root()) continue;
    ASSERT_EQ(checkpoints::list(copied), (Steps{3, 6, 9, 12})) << layout;
    for (const std::int64_t step : {3, 6, 9, 12}) {
      EXPECT_EQ(testing::differences(checkpoints::read(checkpoints::checkpoint_of(direct, step)),
                                     checkpoints::read(checkpoints::checkpoint_of(copied, step))),
                "")
          << layout << " at " << step;
    }
    const std::string folder = local_folder(local, copied);
    EXPECT_TRUE(fs::path(folder).filename().string().starts_with(name + "-")) << folder;
    EXPECT_TRUE(fs::is_empty(folder));
  }
}

// The run was killed when the checkpoint of step 9 was complete on the local disk, but not in the run's folder.
TEST_F(SaverTest, ALocalCheckpointIsCopiedBeforeTheRunResumes) {
  const Settings every = {{"ckpt.every", "3"}, {"ckpt.keep_last", "9"}};
  const std::string directory = train("run/ckpt", with(every, {{"train.max_steps", "9"}}));
  const std::string local = shared_ + "/local";
  const std::string folder = local_folder(local, directory);
  const auto move_to_local = [&](std::int64_t step) {
    if (!world_.is_root()) return;
    fs::create_directories(folder);
    fs::rename(checkpoints::checkpoint_of(directory, step), folder + "/" + checkpoints::folder_name(step));
  };
  const auto resume = [&] {
    world_.barrier();
    SmallRun run(world_, with(kBase, {{"resume", "auto"}, {"ckpt.local_dir", local}}));
    check_resume(world_, "must", directory, local);
    const auto hook = run.checkpoint_hook(directory, "config");
    const auto from = load_or_resume(run, directory);
    world_.barrier();
    return from;
  };
  move_to_local(9);
  EXPECT_EQ(resume(), directory + "/step-000000000009");
  if (world_.is_root()) {
    EXPECT_EQ(checkpoints::list(directory), (Steps{3, 6, 9}));
    EXPECT_TRUE(fs::is_empty(folder));
  }
  EXPECT_THROW(check_resume(world_, "none", directory, local), ConfigError);

  move_to_local(9);
  if (world_.is_root()) {
    fs::resize_file(folder + "/step-000000000009/state.h5", 1000);
  }
  EXPECT_EQ(resume(), directory + "/step-000000000006");
  if (world_.is_root()) {
    EXPECT_TRUE(fs::exists(folder + "/.bad-step-000000000009.1"));
  }
}

// A file in the place of the local folder stands for a disk that is full.
TEST_F(SaverTest, AFullLocalDiskIsNotUsed) {
  const std::string local = shared_ + "/local";
  const auto capture_nothing = [] { return checkpoints::Archive(); };
  CheckpointSaver saver(world_, {.directory = shared_ + "/ckpt", .local = local});
  world_.barrier();
  if (world_.is_root()) {
    fs::remove(local);
    testing::write_file(local, "a file in the way");
  }
  saver.save_now(1, capture_nothing);
  EXPECT_EQ(saver.saved_step(), 1);
  if (world_.is_root()) {
    EXPECT_EQ(checkpoints::list(shared_ + "/ckpt"), (Steps{1}));
  }
}

TEST_F(SaverTest, ACheckpointThatCannotBeCopiedStaysOnTheLocalDisk) {
  const std::string directory = shared_ + "/ckpt";
  const std::string local = shared_ + "/local";
  const auto capture_nothing = [] { return checkpoints::Archive(); };
  CheckpointSaver saver(world_, {.directory = directory, .local = local});
  world_.barrier();
  if (world_.is_root()) {
    fs::rename(directory, directory + ".away");
    testing::write_file(directory, "a file in the way");
  }
  try {
    saver.save_now(1, capture_nothing);
    ADD_FAILURE() << "the copy did not fail";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("it stays on the local disk"), std::string::npos) << error.what();
  }
  if (world_.is_root()) {
    EXPECT_EQ(checkpoints::list(local), (Steps{1}));
  }
}

TEST_F(SaverTest, ShardedCheckpointsOnALocalDiskAreRefused) {
  EXPECT_THROW(train("run/ckpt", {{"ckpt.local_dir", shared_ + "/local"}, {"ckpt.layout", "shards"}}), ConfigError);
}

// Such ranks train different models, and their checkpoint would hide it.
TEST_F(SaverTest, RanksThatDifferAreFoundBeforeTheySave) {
  SmallRun run(world_, with(kBase, {{"ddp.shared_parameters", "false"}}));
  EXPECT_NO_THROW(require_equal_replicas(world_, run.model.wrapper->store()));
  if (world_.rank() == world_.size() - 1 && world_.size() > 1) {
    const torch::NoGradGuard no_grad;
    run.model.wrapper->model().named_parameters()["hidden0.bias"][3].fill_(1e-30);
  }
  try {
    require_equal_replicas(world_, run.model.wrapper->store());
    EXPECT_EQ(world_.size(), 1);
  } catch (const CommError& error) {
    EXPECT_TRUE(error.is_agreed());
    EXPECT_NE(std::string(error.what())
                  .find("parameter 'hidden0.bias' differs from rank 0's on rank " + std::to_string(world_.size() - 1)),
              std::string::npos)
        << error.what();
  }
}

/// The sums of words, as a GPU compares them.
std::vector<std::int64_t> sums_of(std::vector<std::int32_t>& words) {
  const at::Tensor sums = integer_sums(std::as_writable_bytes(std::span(words)), at::kCPU);
  return {sums.const_data_ptr<std::int64_t>(), sums.const_data_ptr<std::int64_t>() + 2};
}

TEST(IntegerSumsTest, OneChangeAndOneExchangeAreAlwaysFound) {
  EXPECT_EQ(integer_sums({}, at::kCPU).numel(), 2);
  std::mt19937 random(7);
  for (const std::size_t count : {1, 2, 3, 16, 17, 255, 1000, 4111}) {
    std::vector<std::int32_t> words(count);
    for (std::int32_t& word : words) word = static_cast<std::int32_t>(random());
    const std::vector<std::int64_t> before = sums_of(words);
    EXPECT_EQ(sums_of(words), before);
    for (int i = 0; i < 200; ++i) {
      const std::size_t one = random() % count;
      const std::size_t other = random() % count;
      const std::uint32_t bit = 1U << (random() % 32);
      words[one] = static_cast<std::int32_t>(static_cast<std::uint32_t>(words[one]) ^ bit);
      EXPECT_NE(sums_of(words), before) << count << " words, word " << one;
      words[one] = static_cast<std::int32_t>(static_cast<std::uint32_t>(words[one]) ^ bit);
      if (words[one] == words[other]) continue;
      std::swap(words[one], words[other]);
      EXPECT_NE(sums_of(words), before) << count << " words, " << one << " and " << other;
      std::swap(words[one], words[other]);
    }
    EXPECT_EQ(sums_of(words), before);
  }
}

// The documented limit: a table of 16 words has rows of 4.
TEST(IntegerSumsTest, ChangesThatCancelInRowsAndColumnsAreMissed) {
  std::vector<std::int32_t> words(16, 5);
  const std::vector<std::int64_t> before = sums_of(words);
  words[0] += 2;
  words[3] -= 2;
  EXPECT_NE(sums_of(words), before);
  words[8] -= 2;
  words[11] += 2;
  EXPECT_EQ(sums_of(words), before);
}

TEST_F(SaverTest, ASecondRunInTheSameFolderIsRefusedOnEveryRank) {
  const CheckpointSaver first(world_, {.directory = shared_ + "/ckpt"});
  // The holder is this very process, which could be an earlier run in it; only another process counts.
  if (world_.is_root()) {
    testing::write_file(shared_ + "/ckpt/LEASE", "host elsewhere\nprocess 1\n");
  }
  world_.barrier();
  try {
    const CheckpointSaver second(world_, {.directory = shared_ + "/ckpt"});
    ADD_FAILURE() << "it was not refused";
  } catch (const CheckpointError& error) {
    EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
    EXPECT_NE(std::string(error.what()).find("another run writes checkpoints to this folder"), std::string::npos);
  }
}

}  // namespace saver_test
}  // namespace lockstep::engine
