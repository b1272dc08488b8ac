// SPDX-License-Identifier: BSD-3-Clause
// A disk that really fills up: a small tmpfs in a mount namespace that this test alone sees, else a limit on the size
// of files. Saves fail, earlier checkpoints stay, nothing half-written is left, and after some room was made saves
// succeed.
#include <csignal>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints/store/memory_slot.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace full_disk_test {

constexpr int kNotAllowed = 77;
constexpr int kFailed = 1;

/// Runs `body` in a child, whose mounts and limits end with it. Expectations print there; its exit code tells.
int in_child(const std::function<bool()>& prepare, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!prepare()) ::_exit(kNotAllowed);
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? kFailed : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool mount_small(const std::string& folder) {
  const int user = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
  if (::unshare(CLONE_NEWNS | user) != 0) return false;
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
}

/// About 200 kB, so that a MiB holds some.
Archive state_of(std::int64_t step) {
  Archive archive = sample(step);
  archive.put("/model/params/large",
              array_of(DType::float32, {50'000}, std::vector<float>(50'000, static_cast<float>(step))));
  return archive;
}

/// Saves as one writer or as several do.
std::string save(const std::string& directory, std::int64_t step, std::uint32_t parts) {
  if (parts == 1) return write(directory, step, state_of(step));
  const std::string staged = stage(directory, step);
  try {
    for (std::uint32_t i = 0; i < parts; ++i) write_part(staged, step, state_of(step), {i, parts});
  } catch (const CheckpointError&) {
    abandon(staged);
    throw;
  }
  return commit(directory, staged, step, {.parts = parts});
}

void fill_and_go_on(const std::string& directory, std::uint32_t parts) {
  std::vector<std::int64_t> saved;
  int failures = 0;
  for (std::int64_t step = 1; step <= 12; ++step) {
    const std::string error = error_of([&] { save(directory, step, parts); });
    if (error.empty()) {
      saved.push_back(step);
      continue;
    }
    ++failures;
    EXPECT_NE(error.find("No space left on device ("), std::string::npos) << error;
    EXPECT_NE(error.find(" bytes and "), std::string::npos) << error;
    EXPECT_EQ(list(directory), saved);
    for (const std::string& name : names_of(directory)) {
      EXPECT_TRUE(name == "LATEST" || name.starts_with("step-")) << name << " was left";
    }
    for (const std::int64_t earlier : saved) {
      EXPECT_TRUE(same(state_of(earlier), read(checkpoint_of(directory, earlier)))) << earlier;
    }
  }
  EXPECT_GE(saved.size(), 2U);
  EXPECT_GE(failures, 2) << "the disk was not full";
  retain(directory, {.keep_last = 1});
  EXPECT_TRUE(same(state_of(99), read(save(directory, 99, parts))));
}

class FullDiskTest : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(FullDiskTest, EarlierCheckpointsStayAndLaterSavesSucceed) {
  const TemporaryFolder folder;
  const int code =
      in_child([&] { return mount_small(folder.path()); }, [&] { fill_and_go_on(folder / "ckpt", GetParam()); });
  if (code == kNotAllowed) GTEST_SKIP() << "no private mount is allowed here";
  EXPECT_EQ(code, 0);
}

// Memory that is not there would be a SIGBUS when it is written to.
TEST(FullMemoryTest, ACopyThatDoesNotFitIsAnErrorAndLaterOnesSucceed) {
  const TemporaryFolder folder;
  const int code = in_child([&] { return mount_small(folder.path()); },
                            [&] {
                              MemorySlot kept(folder / "copy-0");
                              MemorySlot full(folder / "copy-1");
                              const auto copy = [](MemorySlot& slot, const Archive& archive, std::int64_t step) {
                                slot.begin(archive);
                                slot.fill(archive, {});
                                slot.complete(step);
                              };
                              copy(kept, state_of(1), 1);
                              Archive large = state_of(2);
                              large.put("/large", array_of(DType::uint8, {2 << 20}, std::vector<char>(2 << 20, 'x')));
                              const std::string error = error_of([&] { copy(full, large, 2); });
                              EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
                              EXPECT_EQ(step_in_slot(folder / "copy-1"), std::nullopt);
                              copy(full, state_of(3), 3);
                              EXPECT_TRUE(same(state_of(1), read_slot(folder / "copy-0")));
                              EXPECT_TRUE(same(state_of(3), read_slot(folder / "copy-1")));
                            });
  if (code == kNotAllowed) GTEST_SKIP() << "no private mount is allowed here";
  EXPECT_EQ(code, 0);
}

// A file that stands in for it where nothing may be mounted; needs no rights.
TEST_P(FullDiskTest, ALimitOnTheSizeOfFiles) {
  const TemporaryFolder folder;
  const auto limit = [] {
    const rlimit small{.rlim_cur = 60'000, .rlim_max = 60'000};  // a part of one in three is larger
    ::signal(SIGXFSZ, SIG_IGN);
    return ::setrlimit(RLIMIT_FSIZE, &small) == 0;
  };
  save(folder.path(), 1, GetParam());
  const auto before = names_of(folder.path());
  const int code = in_child(limit, [&] {
    for (std::int64_t step = 2; step < 6; ++step) {
      const std::string error = error_of([&] { save(folder.path(), step, GetParam()); });
      EXPECT_NE(error.find("File too large (the limit on file sizes: see `ulimit -f`)"), std::string::npos) << error;
      EXPECT_EQ(names_of(folder.path()), before);
      EXPECT_TRUE(same(state_of(1), read(*latest(folder.path()))));
    }
  });
  EXPECT_EQ(code, 0);
}

INSTANTIATE_TEST_SUITE_P(Parts, FullDiskTest, ::testing::Values(1U, 3U),
                         [](const auto& test) { return test.param == 1 ? "OneWriter" : "ThreeWriters"; });

}  // namespace full_disk_test
}  // namespace lockstep::checkpoints
