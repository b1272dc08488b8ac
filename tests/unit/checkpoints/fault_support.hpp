// SPDX-License-Identifier: BSD-3-Clause
// Lets each system call below the writers misbehave in turn.
#pragma once

#include <cerrno>
#include <climits>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {

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

inline Recorder* recorder = nullptr;

inline std::string path_of(int file) {
  char path[PATH_MAX] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), path, sizeof path - 1) > 0 ? path : "?";
}

inline int fail() {
  errno = recorder->mode == Recorder::Mode::interrupt ? EINTR : recorder->error;
  return -1;
}

inline int noted_mkdir(const char* path, mode_t mode) {
  return recorder->note("mkdir", path) ? fail() : recorder->real.mkdir(path, mode);
}
inline int noted_open(const char* path, int flags, mode_t mode) {
  return recorder->note("open", path) ? fail() : recorder->real.open(path, flags, mode);
}
inline int noted_fallocate(int file, int mode, off_t offset, off_t length) {
  return recorder->note("fallocate", path_of(file)) ? fail() : recorder->real.fallocate(file, mode, offset, length);
}
inline ssize_t noted_pwrite(int file, const void* bytes, std::size_t count, off_t offset) {
  const bool is_target = recorder->note("pwrite", path_of(file));
  if (!is_target) return recorder->real.pwrite(file, bytes, count, offset);
  if (recorder->mode == Recorder::Mode::shorten) return recorder->real.pwrite(file, bytes, count / 2, offset);
  return fail();
}
inline int noted_fsync(int file) {
  return recorder->note("fsync", path_of(file)) ? fail() : recorder->real.fsync(file);
}
inline int noted_close(int file) {
  const bool is_target = recorder->note("close", path_of(file));
  const int result = recorder->real.close(file);
  return is_target ? fail() : result;
}
inline int noted_rename(const char* from, const char* target) {
  return recorder->note("rename", target) ? fail() : recorder->real.rename(from, target);
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

}  // namespace lockstep::checkpoints
