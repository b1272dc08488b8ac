// SPDX-License-Identifier: BSD-3-Clause
// Pull the plug on one rank or on all, at any instant: the next start continues as if nothing had happened, bit for
// bit.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "checkpoints/store/store.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace crash_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

constexpr int kRanks = 2;
constexpr int kSteps = 48;
constexpr int kKillsOfALongRun = 200;

const std::string kRun =
    " --data.train_size=480 --data.val_size=48 --model.name=mlp --model.hidden=64 --optim.name=adamw "
    "--ckpt.every=3 --train.max_steps=" +
    std::to_string(kSteps);

/// How a run that is killed saves.
struct Kind {
  std::string name;
  std::string options;
};

const std::vector<Kind> kKinds = {{"async", ""},
                                  {"sync", " --ckpt.async=false"},
                                  {"sharded", " --ckpt.layout=shards --ckpt.writers=2"},
                                  {"sharded sync", " --ckpt.layout=shards --ckpt.writers=2 --ckpt.async=false"},
                                  {"single", " --ckpt.layout=file"},
                                  {"local", " --ckpt.keep_last=99 --ckpt.local_dir="}};

std::string arguments_of(const std::string& folder, const Kind& kind) {
  const std::string local = kind.name == "local" ? folder + "-local" : "";
  return "train --run.dir=" + folder + kRun + kind.options + local + " --resume=auto";
}

/// Starts a run and kills one of its ranks, or all, after `seconds`.
ProgramResult run_and_kill(const std::string& folder, const Kind& kind, double seconds, bool kills_all) {
  const std::string script = testing::mpirun_command(kRanks) + " " + testing::trainer_program() + " " +
                             arguments_of(folder, kind) + " & job=$!; sleep " + std::to_string(seconds) +
                             "; for p in $(pgrep -x trainer); do if grep -qa -e '--run.dir=" + folder +
                             "' /proc/$p/cmdline; then kill -9 $p; " + (kills_all ? "" : "break; ") +
                             "fi; done; wait $job";
  return testing::run_shell(script, 60);
}

/// Names in the run's folder of checkpoints that a reader would not want to see after a run that ended well.
std::string stale_files_in(const std::string& folder) {
  std::string found;
  for (const auto& entry : fs::directory_iterator(folder + "/ckpt")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") || name == "LEASE") found += name + " ";
  }
  return found;
}

/// Files in shared memory, without copies of states and results, and those of Open MPI only of the jobs of this test,
/// which puts them into `segments`: tests that run at the same time kill ranks, too.
std::set<std::string> files_in_shared_memory(const std::string& segments) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    const bool is_of_others = name.starts_with("vader_segment") || name.find("-lockstep-") != std::string::npos;
    if (!is_of_others) files.insert(name);
  }
  for (const auto& entry : fs::directory_iterator(segments)) files.insert(entry.path().filename().string());
  return files;
}

/// Files in shared memory that were not there `before` and stay: those of other tests that run beside this one go.
std::set<std::string> left_in_shared_memory(const std::set<std::string>& before, const std::string& segments) {
  constexpr int kTries = 1200;
  std::set<std::string> left = files_in_shared_memory(segments);
  std::erase_if(left, [&](const std::string& name) { return before.contains(name); });
  for (int i = 0; i < kTries && !left.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::set<std::string> now = files_in_shared_memory(segments);
    std::erase_if(left, [&](const std::string& name) { return !now.contains(name); });
  }
  return left;
}

TEST(CrashTest, AKilledRunContinuesBitForBit) {
  const testing::TemporaryFolder folder;
  const testing::TemporaryFolder segments;
  ::setenv("OMPI_MCA_btl_vader_backing_directory", segments.path().c_str(), 1);
  const std::string straight = folder.path("straight");
  const auto began = std::chrono::steady_clock::now();
  const ProgramResult undisturbed = testing::run_ranks(kRanks, arguments_of(straight, kKinds[0]));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  const double duration = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const checkpoints::Archive expected = checkpoints::read(checkpoints::checkpoint_of(straight + "/ckpt", kSteps));
  const std::set<std::string> shared_before = files_in_shared_memory(segments.path());

  std::mt19937_64 random(testing::test_seed());
  const int kind_count = static_cast<int>(kKinds.size());
  const int kills = testing::is_long_run() ? kKillsOfALongRun : testing::is_sample() ? kind_count : 2 * kind_count;
  int killed_early = 0;
  for (int i = 0; i < kills; ++i) {
    const Kind& kind = kKinds[static_cast<std::size_t>(i) % kKinds.size()];
    const bool kills_all = (i + i / kind_count) % 2 == 1;  // both with each kind, and in turn
    const double seconds = std::uniform_real_distribution<double>(0.1, 1.1 * duration)(random);
    const std::string run = folder.path("run" + std::to_string(i));
    const std::string what =
        kind.name + (kills_all ? ", all ranks" : ", one rank") + " after " + std::to_string(seconds);
    const ProgramResult killed = run_and_kill(run, kind, seconds, kills_all);
    killed_early += killed.exit_code == 0 ? 0 : 1;
    const ProgramResult resumed = testing::run_ranks(kRanks, arguments_of(run, kind));
    ASSERT_EQ(resumed.exit_code, 0) << what << "\n" << killed.output << "\n" << resumed.output;
    EXPECT_EQ(resumed.output.find("renamed to"), std::string::npos) << what << "\n" << resumed.output;
    const checkpoints::Archive reached = checkpoints::read(checkpoints::checkpoint_of(run + "/ckpt", kSteps));
    EXPECT_EQ(testing::differences(expected, reached), "") << what;
    EXPECT_EQ(stale_files_in(run), "") << what;
    if (kind.name == "local") {
      for (int step = 3; step <= kSteps; step += 3) {
        EXPECT_TRUE(fs::exists(checkpoints::checkpoint_of(run + "/ckpt", step))) << what << ", step " << step;
      }
      for (const auto& entry : fs::directory_iterator(run + "-local")) {
        EXPECT_TRUE(fs::is_empty(entry.path())) << what;
      }
      fs::remove_all(run + "-local");
    }
    fs::remove_all(run);
  }
  EXPECT_GT(killed_early, 0) << "no run was hit before its end";
  // Open MPI leaves the segment of a rank that is killed in MPI_Init, before it has told the launcher of it: seen once
  // in 200 kills.
  std::set<std::string> left = left_in_shared_memory(shared_before, segments.path());
  const auto of_mpi = std::erase_if(left, [](const std::string& name) { return name.starts_with("vader_segment"); });
  EXPECT_EQ(left, std::set<std::string>());
  EXPECT_LE(static_cast<int>(of_mpi), kills / 50);
  std::printf("%d runs killed, %d of them before their end\n", kills, killed_early);
}

}  // namespace crash_test
}  // namespace lockstep
