// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/store.hpp"

#include <array>
#include <chrono>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace store_test {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Steps = std::vector<std::int64_t>;

std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// The number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(StoreTest, FolderNamesHaveTwelveDigits) {
  EXPECT_EQ(folder_name(12000), "step-000000012000");
  EXPECT_EQ(folder_name(0), "step-000000000000");
  EXPECT_EQ(folder_name(999'999'999'999), "step-999999999999");
  EXPECT_THROW(folder_name(-1), std::logic_error);
  EXPECT_THROW(folder_name(1'000'000'000'000), std::logic_error);
}

TEST(StoreTest, ListsFoldersWithTheRightNameOnly) {
  const TemporaryFolder directory;
  for (const std::string name :
       {"step-000000000100", "step-000000000020", "step-00000000003", "step-0000000000300", "step-00000000004x",
        ".tmp-step-000000000500.1.host", ".trash-step-000000000600", ".bad-step-000000000700.1", "xstep-000000000800",
        "step-000000000900.bak", "STEP-000000000001", "step--00000000001", "step-+00000000001"}) {
    fs::create_directory(directory / name);
  }
  put_bytes(directory / "step-000000001000", "a file");
  fs::create_directory_symlink(directory / "step-000000000020", directory / "step-000000001100");
  EXPECT_EQ(list(directory.path()), (Steps{20, 100}));
  EXPECT_EQ(latest(directory.path()), directory / "step-000000000100");
}

TEST(StoreTest, AMissingFolderHoldsNothingAndAFileIsAnError) {
  const TemporaryFolder directory;
  EXPECT_TRUE(list(directory / "nowhere").empty());
  EXPECT_EQ(latest(directory / "nowhere"), std::nullopt);
  put_bytes(directory / "file", "x");
  EXPECT_NE(error_of([&] { list(directory / "file"); }).find("file: cannot be listed: Not a directory"),
            std::string::npos);
}

TEST(StoreTest, AFolderWithOnlyATemporaryHoldsNoCheckpoint) {
  const TemporaryFolder directory;
  fs::create_directory(directory / ".tmp-step-000000000001.1.host");
  put_bytes(directory / ".tmp-step-000000000001.1.host/state.h5", "half");
  EXPECT_EQ(latest(directory.path()), std::nullopt);
}

TEST(StoreTest, WritesNothingButTheCheckpointAndTheHint) {
  const TemporaryFolder directory;
  EXPECT_EQ(write(directory / "a/b/ckpt", 7, sample(7)), directory / "a/b/ckpt/step-000000000007");
  EXPECT_EQ(names_of(directory / "a/b/ckpt"), (Names{"LATEST", "step-000000000007"}));
  EXPECT_EQ(names_of(directory / "a/b/ckpt/step-000000000007"), (Names{"state.h5"}));
  EXPECT_EQ(bytes_of(directory / "a/b/ckpt/LATEST"), "step-000000000007\n");
}

TEST(StoreTest, TheHintIsNotBelieved) {
  const TemporaryFolder directory;
  write(directory.path(), 1, sample(1));
  const std::string second = write(directory.path(), 2, sample(2));
  for (const std::string hint : {"step-000000000001\n", "step-000000000009\n", "", "nonsense"}) {
    put_bytes(directory / "LATEST", hint);
    EXPECT_EQ(latest(directory.path()), second);
  }
  fs::remove(directory / "LATEST");
  fs::create_directory(directory / "LATEST");
  fs::create_directory(directory / "LATEST/in the way");
  EXPECT_EQ(write(directory.path(), 3, sample(3)), directory / "step-000000000003");  // a hint that fails is no failure
  EXPECT_TRUE(same(sample(3), read(*latest(directory.path()))));
}

TEST(StoreTest, TheSameCheckpointAgainIsKept) {
  const TemporaryFolder directory;
  const std::string folder = write(directory.path(), 3, sample(3));
  const auto written = fs::last_write_time(folder + "/state.h5");
  EXPECT_EQ(write(directory.path(), 3, sample(3)), folder);
  EXPECT_EQ(fs::last_write_time(folder + "/state.h5"), written);
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000003"}));
}

TEST(StoreTest, AnotherCheckpointOfThatStepIsNotReplaced) {
  const TemporaryFolder directory;
  const std::string folder = write(directory.path(), 3, sample(3));
  EXPECT_EQ(error_of([&] { write(directory.path(), 3, sample(4)); }),
            folder + ": could not be saved; earlier checkpoints are not affected: " + folder +
                ": a different checkpoint of this step already exists; move it to another folder");
  EXPECT_TRUE(same(sample(3), read(folder)));
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000003"}));
}

TEST(StoreTest, AnUnreadableCheckpointOfThatStepIsSkipped) {
  const TemporaryFolder directory;
  const std::string folder = write(directory.path(), 3, sample(3));
  for (const std::string aside : {".bad-step-000000000003.1", ".bad-step-000000000003.2"}) {
    put_bytes(folder + "/state.h5", "damaged");
    EXPECT_EQ(write(directory.path(), 3, sample(3)), folder);
    EXPECT_TRUE(same(sample(3), read(folder)));
    EXPECT_EQ(bytes_of(directory / aside + "/state.h5"), "damaged");
  }
  EXPECT_EQ(list(directory.path()), (Steps{3}));
}

TEST(StoreTest, AFolderBelowAFileCannotBeMade) {
  const TemporaryFolder directory;
  put_bytes(directory / "file", "x");
  const std::string below = directory / "file/ckpt";
  EXPECT_EQ(error_of([&] { write(below, 1, sample(1)); }),
            below + "/step-000000000001: could not be saved; earlier checkpoints are not affected: " +
                (directory / "file") + ": it is not a folder");
  EXPECT_EQ(error_of([&] { probe(below); }), directory / "file: it is not a folder");
}

TEST(StoreTest, AFailedWriteLeavesNothingBehind) {
  const TemporaryFolder directory;
  const std::string first = write(directory.path(), 1, sample(1));
  const auto before = names_of(directory.path());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 8192, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of([&] { write(directory.path(), 2, sample(2)); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_NE(error.find("failed: File too large (the limit on file sizes: see `ulimit -f`)"), std::string::npos)
      << error;
  EXPECT_NE(error.find(directory / ".tmp-step-000000000002"), std::string::npos) << error;
  EXPECT_EQ(names_of(directory.path()), before);
  EXPECT_TRUE(same(sample(1), read(first)));
  write(directory.path(), 2, sample(2));
  EXPECT_TRUE(same(sample(2), read(*latest(directory.path()))));
}

TEST(StoreTest, RetentionKeepsTheNewest) {
  const TemporaryFolder directory;
  for (const int step : {5, 10, 15, 20, 25}) write(directory.path(), step, sample(step));
  retain(directory.path(), {.keep_last = 3});
  EXPECT_EQ(list(directory.path()), (Steps{15, 20, 25}));
  retain(directory.path(), {.keep_last = 3});
  EXPECT_EQ(list(directory.path()), (Steps{15, 20, 25}));
  retain(directory.path(), {.keep_last = 0});
  EXPECT_EQ(list(directory.path()), (Steps{25}));
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000025"}));
  retain(directory / "nowhere", {});
}

// One that cannot be read must not push out one that can.
TEST(StoreTest, RetentionCountsOnlyFinishedCheckpoints) {
  const TemporaryFolder directory;
  for (const int step : {1, 2, 3, 4}) write(directory.path(), step, sample(step));
  put_bytes(directory / "step-000000000004/state.h5", "damaged");
  retain(directory.path(), {.keep_last = 2});
  EXPECT_EQ(list(directory.path()), (Steps{2, 3, 4}));
}

TEST(StoreTest, RetentionRemovesWhatDeadWritersLeft) {
  const TemporaryFolder directory;
  write(directory.path(), 1, sample(1));
  const std::string step = ".tmp-step-000000000002.";
  const std::string dead = step + std::to_string(dead_process()) + "." + host_name();
  const std::string living = step + std::to_string(::getppid()) + "." + host_name();
  const std::string elsewhere = step + "4194304.elsewhere.example";
  const std::string long_ago = step + "4194305.elsewhere.example";
  for (const std::string& name : {dead, living, elsewhere, long_ago}) {
    fs::create_directory(directory / name);
    put_bytes(directory / name + "/state.h5", "half");
  }
  fs::create_directory(directory / ".trash-step-000000000000");
  put_bytes(directory / ".trash-step-000000000000/state.h5", "x");
  fs::create_directory(directory / ".bad-step-000000000000.1");
  fs::last_write_time(directory / long_ago, fs::file_time_type::clock::now() - std::chrono::hours(25));
  retain(directory.path(), {.keep_last = 1});
  Names expected = {".bad-step-000000000000.1", living, elsewhere, "LATEST", "step-000000000001"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names_of(directory.path()), expected);
}

// Its parent has not asked for its exit code, as mpirun may not have for a while.
TEST(StoreTest, RetentionRemovesWhatAZombieLeft) {
  const TemporaryFolder directory;
  const pid_t zombie = ::fork();
  if (zombie == 0) ::_exit(0);
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT), 0);  // it has ended and stays
  write(directory.path(), 1, sample(1));
  fs::create_directory(directory / (".tmp-step-000000000002." + std::to_string(zombie) + "." + host_name()));
  retain(directory.path(), {.keep_last = 1});
  EXPECT_EQ(names_of(directory.path()), (Names{"LATEST", "step-000000000001"}));
  ::waitpid(zombie, nullptr, 0);
}

TEST(StoreTest, AProbeMakesTheFolderAndLeavesItEmpty) {
  const TemporaryFolder directory;
  probe(directory / "run/ckpt");
  EXPECT_TRUE(names_of(directory / "run/ckpt").empty());
  write(directory / "run/ckpt", 1, sample(1));
  probe(directory / "run/ckpt");
  EXPECT_EQ(names_of(directory / "run/ckpt"), (Names{"LATEST", "step-000000000001"}));
}

}  // namespace store_test
}  // namespace lockstep::checkpoints
