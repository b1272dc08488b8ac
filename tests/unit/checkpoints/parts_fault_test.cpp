// SPDX-License-Identifier: BSD-3-Clause
// Every call of every writer of a checkpoint in several files fails in turn, in every way: the earlier checkpoint stays
// as it is, the sentence names the call, and no half of the new one is ever taken for a whole.
#include <algorithm>

#include "checkpoints/disk/disk.hpp"
#include "fault_support.hpp"
#include "support/program.hpp"

namespace lockstep::checkpoints {
namespace parts_fault_test {

constexpr std::uint32_t kParts = 3;

/// Writes as a run saves: one stages, each writes, one commits; whoever fails, all abandon.
std::string write_in_parts(const std::string& directory, std::int64_t step) {
  std::string staged;
  try {
    staged = stage(directory, step);
    for (std::uint32_t i = 0; i < kParts; ++i) write_part(staged, step, sample(step), {i, kParts});
  } catch (const CheckpointError&) {
    if (!staged.empty()) abandon(staged);
    throw;
  }
  return commit(directory, staged, step, {.parts = kParts});
}

class PartsFaultTest : public FaultTest {
 protected:
  PartsFaultTest() {
    const TemporaryFolder other;
    write_in_parts(other.path(), 1);
    disarm();
    write_in_parts(other.path(), 2);
    calls_ = recorder_.calls;
    commit_ = position("rename step-000000000002");
    hint_ = position("open " + temporary_name("LATEST"));
  }

  std::ptrdiff_t position(const std::string& call) const {
    const auto found = std::find(calls_.begin(), calls_.end(), call);
    EXPECT_NE(found, calls_.end()) << call;
    return found - calls_.begin();
  }

  bool is_write(int target) const { return calls_[static_cast<std::size_t>(target)].starts_with("pwrite "); }

  Names calls_;  ///< calls of one undisturbed write
  std::ptrdiff_t commit_ = 0;
  std::ptrdiff_t hint_ = 0;
};

TEST_F(PartsFaultTest, TheManifestComesAfterTheShardsAndBeforeTheName) {
  const auto manifest = position("fsync MANIFEST.json");
  for (const char* const shard : {"shard-00000-of-00003.h5", "shard-00001-of-00003.h5", "shard-00002-of-00003.h5"}) {
    EXPECT_LT(position("fsync " + std::string(shard)), manifest);
    EXPECT_LT(position("close " + std::string(shard)), manifest);
  }
  EXPECT_LT(manifest, commit_);
  // The folder with their names is on the disk before it gets its own.
  EXPECT_TRUE(calls_.at(static_cast<std::size_t>(commit_) - 1).starts_with("fsync .tmp-step-000000000002."));
}

TEST_F(PartsFaultTest, EveryCallMayFail) {
  struct Fault {
    int error;
    const char* words;
  };
  for (const Fault& fault : {Fault{EIO, "Input/output error"},
                             {ENOSPC, "No space left on device ("},
                             {EDQUOT, "Disk quota exceeded ("},
                             {EROFS, "Read-only file system ("}}) {
    for (int target = 0; target < static_cast<int>(calls_.size()); ++target) {
      const bool is_drawn = fault.error == EIO || (static_cast<std::uint64_t>(target) + testing::test_seed()) % 5 == 0;
      if (!testing::is_long_run() && !is_drawn) continue;
      SCOPED_TRACE(std::string(fault.words) + ", " + calls_[static_cast<std::size_t>(target)]);
      const TemporaryFolder directory;
      disarm();
      write_in_parts(directory.path(), 1);
      const Names before = names_of(directory.path());
      arm(target, Recorder::Mode::fail, fault.error);
      const std::string error = error_of([&] { write_in_parts(directory.path(), 2); });
      disarm();
      if (target < hint_) {
        EXPECT_NE(error.find(" failed: " + std::string(fault.words)), std::string::npos) << error;
        EXPECT_NE(error.find(directory.path()), std::string::npos) << error;
      } else {
        EXPECT_EQ(error, "");  // the hint is a help, no part of the checkpoint
      }
      if (target <= commit_) {
        EXPECT_EQ(names_of(directory.path()), before);
      }
      expect_only_good_checkpoints(directory.path());
      EXPECT_TRUE(same(sample(2), read(write_in_parts(directory.path(), 2))));
    }
  }
}

TEST_F(PartsFaultTest, InterruptedAndShortWritesContinue) {
  for (const auto mode : {Recorder::Mode::interrupt, Recorder::Mode::shorten}) {
    for (int target = 0; target < static_cast<int>(calls_.size()); ++target) {
      const bool is_reserve = calls_[static_cast<std::size_t>(target)].starts_with("fallocate ");
      if (!is_write(target) && !(is_reserve && mode == Recorder::Mode::interrupt)) continue;
      SCOPED_TRACE(calls_[static_cast<std::size_t>(target)]);
      const TemporaryFolder directory;
      arm(target, mode);
      const std::string folder = write_in_parts(directory.path(), 2);
      disarm();
      EXPECT_TRUE(same(sample(2), read(folder)));
    }
  }
}

TEST_F(PartsFaultTest, ADeathBeforeAnyCallLeavesTheEarlierCheckpoint) {
  for (int target = 0; target < static_cast<int>(calls_.size()); ++target) {
    SCOPED_TRACE(calls_[static_cast<std::size_t>(target)]);
    const TemporaryFolder directory;
    disarm();
    write_in_parts(directory.path(), 1);
    const pid_t child = ::fork();
    if (child == 0) {
      arm(target, Recorder::Mode::die);
      write_in_parts(directory.path(), 2);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    const std::vector<std::int64_t> steps = list(directory.path());
    EXPECT_EQ(steps.size(), target > commit_ ? 2U : 1U);
    expect_only_good_checkpoints(directory.path());
    for (const std::string& name : names_of(directory.path())) {
      if (!name.starts_with(".tmp-step")) continue;  // files of the dead writer are no checkpoint before they are whole
      const bool has_manifest = std::filesystem::exists(directory / name + "/MANIFEST.json");
      if (!has_manifest) {
        EXPECT_NE(error_of_read(directory / name), "");
      }
    }
    retain(directory.path(), {.keep_last = 5});
    for (const std::string& name : names_of(directory.path())) EXPECT_FALSE(name.starts_with(".")) << name;
    EXPECT_TRUE(same(sample(2), read(write_in_parts(directory.path(), 2))));
  }
}

}  // namespace parts_fault_test
}  // namespace lockstep::checkpoints
