// SPDX-License-Identifier: BSD-3-Clause
// The order of the system calls that make a checkpoint durable, and what remains when each of them fails or the process
// dies before it.
#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "fault_support.hpp"

namespace lockstep::checkpoints {
namespace fault_test {

// A folder whose entry in its parent is lost in a power cut takes all it holds with it.
TEST_F(FaultTest, EveryNewFolderIsSyncedInItsParent) {
  const TemporaryFolder root;
  const std::string parent = root.path().substr(root.path().rfind('/') + 1);
  disarm();
  write(root / "run/ckpt", 1, sample(1));
  const Names& calls = recorder_.calls;
  const auto position = [&calls](const std::string& call) {
    return std::find(calls.begin(), calls.end(), call) - calls.begin();
  };
  const auto end = static_cast<std::ptrdiff_t>(calls.size());
  EXPECT_LT(position("mkdir run"), position("fsync " + parent));
  EXPECT_LT(position("fsync " + parent), end);
  EXPECT_LT(position("mkdir ckpt"), position("fsync run"));
  EXPECT_LT(position("fsync run"), end);
}

TEST_F(FaultTest, FilesAreOnDiskBeforeTheyGetTheirNameAndNamesAfterwards) {
  const Names calls = calls_of_a_write();
  const auto index = [&](const std::string& call) {
    const auto found = std::find(calls.begin(), calls.end(), call);
    EXPECT_NE(found, calls.end()) << call;
    return found - calls.begin();
  };
  const auto last_pwrite = calls.rend() - std::find(calls.rbegin(), calls.rend(), "pwrite state.h5") - 1;
  const auto file_sync = index("fsync state.h5");
  const auto commit = index("rename step-000000000002");
  EXPECT_LT(index("fallocate state.h5"), index("pwrite state.h5"));
  EXPECT_LT(last_pwrite, file_sync);
  EXPECT_LT(file_sync, index("close state.h5"));
  EXPECT_LT(index("close state.h5"), commit);
  // The names: state.h5 within the temporary folder before the rename, the folder itself after it.
  const std::string folder_sync = calls.at(static_cast<std::size_t>(commit) - 1);
  EXPECT_TRUE(folder_sync.starts_with("fsync .tmp-step-000000000002.")) << folder_sync;
  EXPECT_TRUE(calls.at(static_cast<std::size_t>(commit) + 1).starts_with("open lockstep-test-"));
  EXPECT_TRUE(calls.at(static_cast<std::size_t>(commit) + 2).starts_with("fsync lockstep-test-"));
  // The hint: on disk before its name, and only after the checkpoint.
  EXPECT_LT(commit, index("fsync " + temporary_name("LATEST")));
  EXPECT_LT(index("fsync " + temporary_name("LATEST")), index("rename LATEST"));
  EXPECT_TRUE(calls.back().starts_with("fsync lockstep-test-"));
}

TEST_F(FaultTest, EveryCallMayFailAndTheEarlierCheckpointStays) {
  const Names calls = calls_of_a_write();
  const auto commit = std::find(calls.begin(), calls.end(), "rename step-000000000002") - calls.begin();
  const auto hint = std::find(calls.begin(), calls.end(), "open " + temporary_name("LATEST")) - calls.begin();
  ASSERT_LT(hint, static_cast<std::ptrdiff_t>(calls.size()));
  for (int target = 0; target < static_cast<int>(calls.size()); ++target) {
    SCOPED_TRACE(calls[static_cast<std::size_t>(target)]);
    const TemporaryFolder directory;
    disarm();
    write(directory.path(), 1, sample(1));
    const Names before = names_of(directory.path());
    arm(target);
    const std::string error = error_of([&] { write(directory.path(), 2, sample(2)); });
    disarm();
    if (target < hint) {
      const std::string outcome = target <= commit ? "could not be saved; earlier checkpoints are not affected: "
                                                   : "was saved, but may be lost after a power failure: ";
      EXPECT_TRUE(error.starts_with((directory / "step-000000000002: ") + outcome)) << error;
      EXPECT_NE(error.find("failed: Input/output error"), std::string::npos) << error;
    } else {
      EXPECT_EQ(error, "");  // the hint is a help, no part of the checkpoint
    }
    if (target <= commit) {
      EXPECT_EQ(names_of(directory.path()), before);
    }
    expect_only_good_checkpoints(directory.path());
    EXPECT_EQ(write(directory.path(), 2, sample(2)), directory / "step-000000000002");
    EXPECT_EQ(latest(directory.path()), directory / "step-000000000002");
    EXPECT_EQ(bytes_of(directory / "LATEST"), "step-000000000002\n");
  }
}

TEST_F(FaultTest, ADeathBeforeAnyCallLeavesTheEarlierCheckpoint) {
  const Names calls = calls_of_a_write();
  const auto sync = std::find(calls.begin(), calls.end(), "fsync state.h5") - calls.begin();
  const auto first_pwrite = std::find(calls.begin(), calls.end(), "pwrite state.h5") - calls.begin();
  const TemporaryFolder directory;
  for (int target = 0; target < static_cast<int>(calls.size()); ++target) {
    SCOPED_TRACE(calls[static_cast<std::size_t>(target)]);
    std::filesystem::remove_all(directory.path());
    disarm();
    write(directory.path(), 1, sample(1));
    const pid_t child = ::fork();
    if (child == 0) {
      arm(target, Recorder::Mode::die);
      write(directory.path(), 2, sample(2));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    for (const std::string& name : names_of(directory.path())) {
      const std::string file = directory / name + "/state.h5";
      if (!name.starts_with(".tmp-") || !std::filesystem::exists(file)) continue;
      const std::string error = error_of_read(file);
      if (target < sync) {
        EXPECT_NE(error, "") << "unfinished, yet it reads";
      }
      if (target > first_pwrite && target < sync) {
        EXPECT_TRUE(error.starts_with(file + ": it is incomplete: its writer was stopped while it saved step 2 ("))
            << error;
      }
    }
    expect_only_good_checkpoints(directory.path());
    retain(directory.path(), {.keep_last = 5});
    for (const std::string& name : names_of(directory.path())) EXPECT_FALSE(name.starts_with(".")) << name;
    write(directory.path(), 2, sample(2));
    EXPECT_TRUE(same(sample(2), read(*latest(directory.path()))));
  }
}

TEST_F(FaultTest, AnInterruptedOrShortWriteContinues) {
  const Names calls = calls_of_a_write();
  for (const auto mode : {Recorder::Mode::interrupt, Recorder::Mode::shorten}) {
    for (int target = 0; target < static_cast<int>(calls.size()); ++target) {
      if (!calls[static_cast<std::size_t>(target)].starts_with("pwrite state.h5")) continue;
      const TemporaryFolder directory;
      arm(target, mode);
      const std::string folder = write(directory.path(), 2, sample(2));
      disarm();
      EXPECT_TRUE(same(sample(2), read(folder)));
    }
  }
}

TEST_F(FaultTest, AFileSystemThatCannotReserveSpaceWillDo) {
  const Names calls = calls_of_a_write();
  const auto reserve = std::find(calls.begin(), calls.end(), "fallocate state.h5") - calls.begin();
  const TemporaryFolder directory;
  arm(static_cast<int>(reserve), Recorder::Mode::fail, EOPNOTSUPP);
  EXPECT_TRUE(same(sample(2), read(write(directory.path(), 2, sample(2)))));
}

TEST_F(FaultTest, AFullDiskIsNoticedBeforeAnythingIsWritten) {
  const Names calls = calls_of_a_write();
  const auto reserve = std::find(calls.begin(), calls.end(), "fallocate state.h5") - calls.begin();
  const TemporaryFolder directory;
  arm(static_cast<int>(reserve), Recorder::Mode::fail, ENOSPC);
  const std::string error = error_of([&] { write(directory.path(), 2, sample(2)); });
  EXPECT_NE(error.find(" bytes failed: No space left on device ("), std::string::npos) << error;
  EXPECT_NE(error.find(" files are available there; free some space, or lower ckpt.keep_last)"), std::string::npos)
      << error;
  EXPECT_EQ(std::count(recorder_.calls.begin(), recorder_.calls.end(), "pwrite state.h5"), 0);
  EXPECT_TRUE(names_of(directory.path()).empty());
}

TEST_F(FaultTest, DeletionRenamesFirstAndMakesThatDurable) {
  const TemporaryFolder directory;
  write(directory.path(), 1, sample(1));
  write(directory.path(), 2, sample(2));
  disarm();
  retain(directory.path(), {.keep_last = 1});
  ASSERT_EQ(recorder_.calls.size(), 3u);
  EXPECT_EQ(recorder_.calls[0], "rename .trash-step-000000000001");
  EXPECT_TRUE(recorder_.calls[2].starts_with("fsync lockstep-test-"));

  write(directory.path(), 3, sample(3));
  for (int target = 0; target < 3; ++target) {
    arm(target);
    EXPECT_NE(error_of([&] { retain(directory.path(), {.keep_last = 1}); }), "");
    disarm();
    for (const std::int64_t step : list(directory.path())) {
      EXPECT_TRUE(same(sample(step), read(directory / folder_name(step))));
    }
    write(directory.path(), 2, sample(2));
  }
  retain(directory.path(), {.keep_last = 1});
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000003"}));
}

TEST_F(FaultTest, AProbeFailsWithTheCallThatFails) {
  const TemporaryFolder directory;
  disarm();
  probe(directory.path());
  const Names calls = recorder_.calls;
  EXPECT_GE(calls.size(), 7u);
  for (int target = 0; target < static_cast<int>(calls.size()); ++target) {
    SCOPED_TRACE(calls[static_cast<std::size_t>(target)]);
    arm(target, Recorder::Mode::fail, EROFS);
    EXPECT_NE(error_of([&] { probe(directory.path()); }).find(" failed: Read-only file system"), std::string::npos);
    EXPECT_TRUE(names_of(directory.path()).empty());
  }
}

}  // namespace fault_test
}  // namespace lockstep::checkpoints
