// SPDX-License-Identifier: BSD-3-Clause
// The order of the system calls that make a checkpoint durable, and what remains when each of them fails or the process
// dies before it.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <sys/wait.h>
#include <unistd.h>

#include "support.hpp"
#include "syscalls.hpp"

namespace lockstep::checkpoints {
namespace {

using Names = std::vector<std::string>;

/// Records each call as "name subject", where the subject is the last part of the path, and lets one of them misbehave.
struct Recorder {
  enum class Mode { fail, die, interrupt, shorten };

  Syscalls real;
  Names calls;
  int target = -1;  ///< the number of the call that misbehaves; none when negative
  Mode mode = Mode::fail;
  int error = EIO;

  /// @return  whether this call is the one that misbehaves
  bool note(const char* call, const std::string& path) {
    calls.push_back(std::string(call) + " " + path.substr(path.rfind('/') + 1));
    const bool is_target = static_cast<int>(calls.size()) - 1 == target;
    if (is_target && mode == Mode::die) ::_exit(42);
    return is_target;
  }
};

Recorder* recorder = nullptr;

std::string path_of(int file) {
  char path[PATH_MAX] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), path, sizeof path - 1) > 0 ? path : "?";
}

int fail() {
  errno = recorder->mode == Recorder::Mode::interrupt ? EINTR : recorder->error;
  return -1;
}

int noted_mkdir(const char* path, mode_t mode) {
  return recorder->note("mkdir", path) ? fail() : recorder->real.mkdir(path, mode);
}
int noted_open(const char* path, int flags, mode_t mode) {
  return recorder->note("open", path) ? fail() : recorder->real.open(path, flags, mode);
}
int noted_fallocate(int file, int mode, off_t offset, off_t length) {
  return recorder->note("fallocate", path_of(file)) ? fail() : recorder->real.fallocate(file, mode, offset, length);
}
ssize_t noted_pwrite(int file, const void* bytes, std::size_t count, off_t offset) {
  const bool is_target = recorder->note("pwrite", path_of(file));
  if (!is_target) return recorder->real.pwrite(file, bytes, count, offset);
  if (recorder->mode == Recorder::Mode::shorten) return recorder->real.pwrite(file, bytes, count / 2, offset);
  return fail();
}
int noted_fsync(int file) { return recorder->note("fsync", path_of(file)) ? fail() : recorder->real.fsync(file); }
int noted_close(int file) {
  const bool is_target = recorder->note("close", path_of(file));
  const int result = recorder->real.close(file);
  return is_target ? fail() : result;
}
int noted_rename(const char* from, const char* to) {
  return recorder->note("rename", to) ? fail() : recorder->real.rename(from, to);
}

class FaultTest : public ::testing::Test {
 protected:
  FaultTest() {
    recorder_.real = syscalls();
    recorder = &recorder_;
    syscalls() = {noted_mkdir, noted_open, noted_fallocate, noted_pwrite, noted_fsync, noted_close, noted_rename};
  }
  ~FaultTest() override {
    syscalls() = recorder_.real;
    recorder = nullptr;
  }

  /// Forgets the calls so far; call number `target` from now on misbehaves.
  void arm(int target, Recorder::Mode mode = Recorder::Mode::fail, int error = EIO) {
    recorder_.calls.clear();
    recorder_.target = target;
    recorder_.mode = mode;
    recorder_.error = error;
  }
  void disarm() { arm(-1); }

  /// The calls of one undisturbed write into `directory_`.
  Names calls_of_a_write() {
    const TemporaryFolder other;
    write(other.path(), 1, sample(1));
    disarm();
    write(other.path(), 2, sample(2));
    return recorder_.calls;
  }

  /// Every folder that looks like a checkpoint is one, and that of step 1 is as it was.
  void expect_only_good_checkpoints(const std::string& directory) {
    for (const std::int64_t step : list(directory)) {
      EXPECT_TRUE(same(sample(step), read(directory + "/" + folder_name(step)))) << step;
    }
    EXPECT_EQ(list(directory).front(), 1);
  }

  Recorder recorder_;
};

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
  EXPECT_LT(commit, index("fsync .LATEST.tmp"));
  EXPECT_LT(index("fsync .LATEST.tmp"), index("rename LATEST"));
  EXPECT_TRUE(calls.back().starts_with("fsync lockstep-test-"));
}

TEST_F(FaultTest, EveryCallMayFailAndTheEarlierCheckpointStays) {
  const Names calls = calls_of_a_write();
  const auto commit = std::find(calls.begin(), calls.end(), "rename step-000000000002") - calls.begin();
  const auto hint = std::find(calls.begin(), calls.end(), "open .LATEST.tmp") - calls.begin();
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
      const std::string outcome = target <= commit ? "could not be saved, earlier checkpoints are untouched: "
                                                   : "was saved, but may not survive a power cut: ";
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
        EXPECT_EQ(error, file + ": it is unfinished: its writer was stopped in the middle of step 2's checkpoint");
      }
    }
    expect_only_good_checkpoints(directory.path());
    retain(directory.path(), {.keep_last = 5});
    for (const std::string& name : names_of(directory.path())) EXPECT_FALSE(name.starts_with(".tmp-step-")) << name;
    write(directory.path(), 2, sample(2));
    EXPECT_TRUE(same(sample(2), read(*latest(directory.path()))));
  }
}

TEST_F(FaultTest, AnInterruptedOrShortWriteGoesOn) {
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
  EXPECT_NE(error.find(" bytes failed: No space left on device (make room, or lower ckpt.keep_last)"),
            std::string::npos)
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

}  // namespace
}  // namespace lockstep::checkpoints
