// SPDX-License-Identifier: BSD-3-Clause
// Ranks and launchers are killed at any instant, and the run continues by itself, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "heal_runs.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace heal_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

constexpr int kSteps = 1500;

/// A run whose bits do not depend on the number of ranks.
std::string arguments() {
  return " train --data.train_size=480 --data.val_size=48 --model.name=mlp --model.hidden=64 --optim.name=adamw "
         "--train.lanes=4 --train.global_batch_size=16 --run.threads=1 --log.every=1 --eval.every=never "
         "--ckpt.memory_every=10 --train.max_steps=" +
         std::to_string(kSteps);
}

testing::DisturbedRun run_of(const std::string& folder, const std::string& flags, const std::string& options,
                             const std::string& script) {
  return {
      .folder = folder, .words = testing::trainer_program() + arguments() + options, .flags = flags, .script = script};
}

/// Starts a supervised run, and does something to it.
/// @param flags    options of mpirun
/// @param options  keys
/// @param script   see DisturbedRun
ProgramResult run_and_disturb(int ranks, const std::string& folder, const std::string& flags,
                              const std::string& options, const std::string& script) {
  return testing::run_shell(testing::on_one_host(ranks, run_of(folder, flags, options, script)), 300);
}

/// The same on two hosts of this machine, with so many ranks on each.
ProgramResult disturb_two_hosts(int ranks, const testing::TemporaryFolder& folder, const std::string& flags,
                                const std::string& options, const std::string& script) {
  const testing::DisturbedRun run = run_of(folder.path("run"), flags, options, script);
  return testing::run_shell(testing::on_two_hosts(ranks, folder.path(), run), 300);
}

checkpoints::Archive final_state(const std::string& folder) {
  return checkpoints::read(checkpoints::checkpoint_of(folder + "/ckpt", kSteps));
}

/// The end of a run that nothing has disturbed.
const checkpoints::Archive& expected() {
  static const testing::TemporaryFolder folder;
  static const checkpoints::Archive state = [] {
    const ProgramResult outcome = testing::run_ranks(2, arguments() + " --run.dir=" + folder.path("run"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return final_state(folder.path("run"));
  }();
  return state;
}

/// That the run has ended as if nothing had happened, and has left nothing in memory.
void expect_healed(const ProgramResult& outcome, const std::string& folder, const std::vector<double>& rungs) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(testing::values_in(folder, "heal/rung"), rungs) << outcome.output;
  EXPECT_EQ(testing::differences(final_state(folder), expected()), "");
  EXPECT_FALSE(fs::exists(folder + "/ckpt/COPIES"));
  EXPECT_FALSE(fs::exists(folder + "/failure.json"));
}

/// The folder of the copies in memory of a run that has not ended.
std::string copies_of(const std::string& run) {
  const std::string note = testing::read_file(run + "/ckpt/COPIES");
  return note.substr(0, note.find('\n'));
}

/// A step at which something happens; another one in each run.
int some_step() { return testing::drawn_between(20, kSteps / 2); }

int repeats() { return testing::is_long_run() ? 50 : 1; }

/// The mechanisms by which ranks copy large messages.
const std::vector<std::string>& copy_mechanisms() {
  static const std::vector<std::string> mechanisms = {"", "--mca btl_vader_single_copy_mechanism none "};
  return mechanisms;
}

TEST(HealTest, TheOtherRanksContinueInPlaceWhenOneDies) {
  for (int i = 0; i < repeats() * 3; ++i) {
    const int ranks = 2 + i % 3;
    const int victim = static_cast<int>(some_step()) % ranks;
    const testing::TemporaryFolder folder;
    const std::string run = folder.path("run");
    const ProgramResult outcome = run_and_disturb(
        ranks, run, "--enable-recovery " + copy_mechanisms()[static_cast<std::size_t>(i) % 2], " --run.heal=shrink",
        "await_step " + std::to_string(some_step()) + "; set -- $(ranks); shift " + std::to_string(victim) +
            "; kill -9 $1");
    SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(ranks));
    expect_healed(outcome, run, {1});
    EXPECT_NE(outcome.output.find("rank " + std::to_string(victim) + " has died"), std::string::npos) << outcome.output;
    EXPECT_EQ(testing::values_in(run, "heal/steps_lost").size(), 1U);
  }
}

TEST(HealTest, SurvivorsKeepTheirProcesses) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult outcome = run_and_disturb(
      3, run, "--enable-recovery ", " --run.heal=shrink",
      "await_step 100; set -- $(ranks); echo before: $1 $3; kill -9 $2; await_recovery; echo after: $(ranks)");
  expect_healed(outcome, run, {1});
  const auto processes_after = [&](const std::string& word) {
    const std::size_t begin = outcome.output.find(word) + word.size();
    return outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
  };
  EXPECT_EQ(processes_after("before: "), processes_after("after: ")) << outcome.output;
}

TEST(HealTest, RanksThatDieOneAfterTheOtherAreLeftOut) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult outcome =
      run_and_disturb(4, run, "--enable-recovery ", " --run.heal=shrink",
                      "await_step 60; kill -9 $(ranks | head -1); await_recovery; kill -9 $(ranks | tail -1)");
  expect_healed(outcome, run, {1, 1});
}

// The second one may die while the others look for each other: then the job may be started again.
TEST(HealTest, TwoRanksDieWithinARecovery) {
  for (int i = 0; i < repeats(); ++i) {
    const testing::TemporaryFolder folder;
    const std::string run = folder.path("run");
    const ProgramResult outcome =
        run_and_disturb(4, run, "--enable-recovery ", " --run.heal=shrink",
                        "await_step " + std::to_string(some_step()) + "; set -- $(ranks); kill -9 $1; sleep 0.0" +
                            std::to_string(some_step() % 10) + "; kill -9 $4");
    const std::vector<double> rungs = testing::values_in(run, "heal/rung");
    EXPECT_TRUE(!rungs.empty() && rungs.size() <= 2) << outcome.output;
    expect_healed(outcome, run, rungs);
  }
}

TEST(HealTest, TheJobIsStartedAgainWhenItEndsWithARank) {
  for (int i = 0; i < repeats(); ++i) {
    const testing::TemporaryFolder folder;
    const std::string run = folder.path("run");
    const ProgramResult outcome = run_and_disturb(
        2, run, copy_mechanisms()[static_cast<std::size_t>(i) % 2], "",
        "await_step " + std::to_string(some_step()) + "; kill -9 $(ranks | " + (i % 2 == 0 ? "head" : "tail") + " -1)");
    expect_healed(outcome, run, {2});
  }
}

TEST(HealTest, TheJobIsStartedAgainWhenItsLauncherIsKilled) {
  for (int i = 0; i < repeats(); ++i) {
    const testing::TemporaryFolder folder;
    const std::string run = folder.path("run");
    const ProgramResult outcome =
        run_and_disturb(2, run, "--enable-recovery ", " --run.heal=shrink",
                        "await_step " + std::to_string(some_step()) + "; kill -9 $(launchers)");
    expect_healed(outcome, run, {2});
  }
}

TEST(HealTest, ARankOnAnotherHostIsLeftOut) {
  for (int victim = 0; victim < 4; ++victim) {
    if (!testing::is_sampled(static_cast<std::uint64_t>(victim), 4)) continue;
    const testing::TemporaryFolder folder;
    const ProgramResult outcome =
        disturb_two_hosts(2, folder, "--enable-recovery ", " --run.heal=shrink",
                          "await_step 60; set -- $(ranks); shift " + std::to_string(victim) + "; kill -9 $1");
    if (outcome.exit_code == testing::kNoTwoHosts) GTEST_SKIP() << outcome.output;
    SCOPED_TRACE("rank " + std::to_string(victim));
    expect_healed(outcome, folder.path("run"), {1});
    const std::string words = "rank " + std::to_string(victim) + (victim < 2 ? "" : " on nodeb") + " has died";
    EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
  }
}

// The copy of the second host is all that is left in memory, and the lease belongs to a process of another host.
TEST(HealTest, TheFirstHostLosesItsOnlyRank) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = disturb_two_hosts(1, folder, "--enable-recovery ", " --run.heal=shrink",
                                                  "await_step 100; set -- $(ranks); kill -9 $1");
  if (outcome.exit_code == testing::kNoTwoHosts) GTEST_SKIP() << outcome.output;
  expect_healed(outcome, folder.path("run"), {1});
  EXPECT_NE(outcome.output.find("from /dev/shm/copies-lockstep-"), std::string::npos) << outcome.output;
}

TEST(HealTest, TheJobContinuesWithoutAHost) {
  // mpirun ends a job that loses a host, unless it is told to recover; then the ranks notice the silence of the host.
  const std::vector<std::pair<std::string, std::string>> ways = {{"", ""},
                                                                 {"--enable-recovery ", " --run.heal=shrink"}};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    if (!testing::is_sampled(way, ways.size())) continue;
    const testing::TemporaryFolder folder;
    const ProgramResult outcome = disturb_two_hosts(2, folder, ways[way].first, ways[way].second,
                                                    "await_step 60; " + testing::remove_second_host(folder.path()));
    if (outcome.exit_code == testing::kNoTwoHosts) GTEST_SKIP() << outcome.output;
    SCOPED_TRACE(ways[way].first);
    expect_healed(outcome, folder.path("run"), {way == 0 ? 2.0 : 1.0});
  }
}

// A rank that dies before the silence of the lost host is noticed: the one that is left waits for a host that is gone.
TEST(HealTest, ARankDiesWhileAHostIsLost) {
  for (int i = 0; i < (repeats() + 9) / 10; ++i) {
    const testing::TemporaryFolder folder;
    const ProgramResult outcome =
        disturb_two_hosts(2, folder, "--enable-recovery ", " --run.heal=shrink --comm.timeout_s=4",
                          "await_step 60; " + testing::remove_second_host(folder.path()) + "\nsleep " +
                              std::to_string(testing::drawn_between(0, 4)) + ".5; set -- $(ranks); shift; kill -9 $1");
    if (outcome.exit_code == testing::kNoTwoHosts) GTEST_SKIP() << outcome.output;
    expect_healed(outcome, folder.path("run"), testing::values_in(folder.path("run"), "heal/rung"));
  }
}

TEST(HealTest, AHostThatFailsTwiceIsLeftOut) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      disturb_two_hosts(1, folder, "", "",
                        "await_step 60; kill -9 $(ranks | tail -1); await_recovery; "
                        "await_step $(($(wc -l <" +
                            folder.path("run") + "/metrics.jsonl) + 20)); kill -9 $(ranks | tail -1)");
  if (outcome.exit_code == testing::kNoTwoHosts) GTEST_SKIP() << outcome.output;
  expect_healed(outcome, folder.path("run"), {2, 2});
  EXPECT_NE(outcome.output.find("a rank on nodeb has died; failures of this host so far: 1"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("failures of this host so far: 2; it is left out"), std::string::npos)
      << outcome.output;
}

TEST(HealTest, AStopThatWasRequestedIsNoFailure) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult outcome = run_and_disturb(2, run, "", "", "await_step 20; kill -USR2 $heal");
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_TRUE(testing::values_in(run, "heal/rung").empty());
}

// The next start may be one by hand, which makes no copies.
TEST(HealTest, AResumedRunUsesCopiesAndRemovesThem) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  run_and_disturb(
      2, run, "--enable-recovery ", " --run.heal=shrink",
      "await_step 100; kill -9 $heal; for i in $(seq 1000); do [ -z \"$(ranks)\" ] && break; sleep 0.01; done");
  const std::string copies = copies_of(run);
  ASSERT_TRUE(fs::is_directory(copies)) << copies;
  const ProgramResult resumed =
      testing::run_ranks(2, arguments() + " --run.dir=" + run + " --ckpt.memory_every=0 --resume=auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("from " + copies), std::string::npos) << resumed.output;
  EXPECT_EQ(testing::differences(final_state(run), expected()), "");
  EXPECT_FALSE(fs::exists(copies));
  EXPECT_FALSE(fs::exists(run + "/ckpt/COPIES"));
}

TEST(HealTest, AJobEndsWithItsSupervisor) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult outcome = run_and_disturb(
      2, run, "--enable-recovery ", " --run.heal=shrink",
      "await_step 20; kill -9 $heal; for i in $(seq 1000); do [ -z \"$(ranks)\" ] && break; sleep 0.01; done; "
      "echo supervisor: $heal; echo left: $(ranks)");
  EXPECT_NE(outcome.output.find("left:\n"), std::string::npos) << outcome.output;
  EXPECT_FALSE(fs::exists(run + "/ckpt/" + checkpoints::folder_name(kSteps)));
  fs::remove_all(copies_of(run));  // nobody resumes the run
  // The next supervisor removes what one that was killed could not.
  const std::size_t number = outcome.output.find("supervisor: ") + 12;
  const std::string process = outcome.output.substr(number, outcome.output.find('\n', number) - number);
  testing::run_shell(testing::trainer_program() + " heal --max-heals=0 true");
  EXPECT_FALSE(fs::exists("/dev/shm/result-lockstep-" + std::to_string(::geteuid()) + "-" + process)) << outcome.output;
}

TEST(HealTest, AnErrorOfTheConfigurationIsNotRepeated) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = run_and_disturb(2, folder.path("run"), "--enable-recovery ", " --optim.lr=-1", "");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_EQ(outcome.output.find("again"), std::string::npos) << outcome.output;
}

TEST(HealTest, AJobThatNeverSavesIsNotStartedForever) {
  const ProgramResult outcome =
      testing::run_shell(testing::trainer_program() + " heal --max-heals=2 sh -c 'echo started; kill -9 $$'");
  EXPECT_EQ(outcome.exit_code, 137) << outcome.output;
  std::size_t starts = 0;
  for (std::size_t at_line = 0; (at_line = outcome.output.find("started\n", at_line)) != std::string::npos; ++at_line) {
    ++starts;
  }
  EXPECT_EQ(starts, 3U) << outcome.output;
}

// mpirun does so when a host is lost and the ranks on the others have ended.
TEST(HealTest, ALauncherWhoseProcessesHaveEndedIsNotWaitedFor) {
  const ProgramResult outcome = testing::run_shell(testing::trainer_program() +
                                                       " heal --max-heals=0 sh -c 'sleep 0.5 & wait; printf \"step "
                                                       "000000000001\\n\\0\\0\\0\\0\\0\\0\\0\\0\\0run /tmp/none\\n\" "
                                                       ">$LOCKSTEP_RESULT; exec sleep 60'",
                                                   30);
  EXPECT_EQ(outcome.exit_code, 137) << outcome.output;
}

TEST(HealTest, HealIsNotStartedByALauncher) {
  const ProgramResult outcome = testing::run_ranks(2, "heal true");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("heal starts the launcher"), std::string::npos) << outcome.output;
}

}  // namespace heal_test
}  // namespace lockstep
