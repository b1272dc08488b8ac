// SPDX-License-Identifier: BSD-3-Clause
// Ranks and launchers are killed at any instant, and the run continues by itself, bit for bit.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace heal_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

constexpr int kSteps = 1500;
constexpr int kNotPermitted = 77;  // exit code of two_hosts.sh

/// A run whose bits do not depend on the number of ranks.
std::string arguments_of(const std::string& folder, int steps = kSteps) {
  return " train --run.dir=" + folder +
         " --data.train_size=480 --data.val_size=48 --model.name=mlp --model.hidden=64 --optim.name=adamw "
         "--train.lanes=4 --train.global_batch_size=16 --run.threads=1 --log.every=1 --eval.every=never "
         "--ckpt.memory_every=10 --train.max_steps=" +
         std::to_string(steps);
}

/// Shell functions about the ranks of a run in `folder`: `ranks` prints the numbers of their processes in the order of
/// ranks, `await_step N` waits until metrics.jsonl has that many lines, `await_recovery` until it has a recovery.
std::string functions(const std::string& folder) {
  return "ranks() { for p in $(pgrep -x trainer); do "
         "tr '\\0' ' ' 2>/dev/null </proc/$p/cmdline | grep -q -e '--run.dir=" +
         folder +
         "' || continue; r=$(tr '\\0' '\\n' 2>/dev/null </proc/$p/environ | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'); "
         "[ -n \"$r\" ] && echo \"$r $p\"; done | sort -n | cut -d' ' -f2; }\n"
         "await_step() { for i in $(seq 4000); do [ \"$(wc -l 2>/dev/null <" +
         folder +
         "/metrics.jsonl)\" -ge $1 ] 2>/dev/null && return; sleep 0.005; done; }\n"
         "await_recovery() { for i in $(seq 4000); do grep -qs heal/rung " +
         folder + "/metrics.jsonl && return; sleep 0.005; done; }\n";
}

/// A shell command that starts a supervised run, and does something to it when it has done some steps.
/// @param flags    options of mpirun
/// @param options  keys
/// @param script   what is done, in the shell; $heal is the process of the supervisor
std::string disturbed_run(int ranks, const std::string& folder, const std::string& flags, const std::string& options,
                          const std::string& script, int steps = kSteps) {
  const std::string mpirun = testing::mpirun_command(ranks);
  const std::size_t space = mpirun.find(' ');
  return functions(folder) + testing::trainer_program() + " heal " + mpirun.substr(0, space) + " " + flags +
         mpirun.substr(space) + " " + testing::trainer_program() + arguments_of(folder, steps) + options +
         " & heal=$!\n" + script + "\nwait $heal";
}

ProgramResult run_and_disturb(int ranks, const std::string& folder, const std::string& flags,
                              const std::string& options, const std::string& script, int steps = kSteps) {
  return testing::run_shell(disturbed_run(ranks, folder, flags, options, script, steps), 300);
}

/// The same on two hosts of this machine, with so many ranks on each. The supervisor is on the first host.
ProgramResult disturb_two_hosts(int ranks, const testing::TemporaryFolder& folder, const std::string& flags,
                                const std::string& options, const std::string& script) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  const std::string run = folder.path("run");
  return testing::run_shell(functions(run) + "TWO_HOSTS_SUPERVISOR=" + testing::trainer_program() + "' heal' " +
                                (source != nullptr ? source : ".") + "/tests/system/two_hosts.sh '" + folder.path() +
                                "' " + std::to_string(ranks) + " " + flags + testing::trainer_program() +
                                arguments_of(run) + " --ckpt.partner=true" + options + " & heal=$!\n" + script +
                                "\nwait $heal",
                            300);
}

checkpoints::Archive final_state(const std::string& folder, int steps = kSteps) {
  return checkpoints::read(checkpoints::checkpoint_of(folder + "/ckpt", steps));
}

/// The end of a run that nothing has disturbed.
const checkpoints::Archive& expected() {
  static const testing::TemporaryFolder folder;
  static const checkpoints::Archive state = [] {
    const ProgramResult outcome = testing::run_ranks(2, arguments_of(folder.path("run")));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return final_state(folder.path("run"));
  }();
  return state;
}

/// The values of a name in metrics.jsonl.
std::vector<double> values_in(const std::string& folder, const std::string& name) {
  std::vector<double> values;
  std::istringstream lines(testing::read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t place = line.find("\"" + name + "\"");
    if (place != std::string::npos) values.push_back(std::stod(line.substr(line.find(':', place) + 1)));
  }
  return values;
}

/// That the run has ended as if nothing had happened, and has left nothing in memory.
void expect_healed(const ProgramResult& outcome, const std::string& folder, const std::vector<double>& rungs) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(values_in(folder, "heal/rung"), rungs) << outcome.output;
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
int some_step() {
  static std::mt19937_64 draws(testing::is_long_run() ? std::random_device()() : testing::test_seed());
  return std::uniform_int_distribution(20, kSteps / 2)(draws);
}

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
    EXPECT_EQ(values_in(run, "heal/steps_lost").size(), 1U);
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
    const std::vector<double> rungs = values_in(run, "heal/rung");
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
                        "await_step " + std::to_string(some_step()) + "; kill -9 $(pgrep -P $heal mpirun)");
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
    if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
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
  if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
  expect_healed(outcome, folder.path("run"), {1});
  EXPECT_NE(outcome.output.find("from /dev/shm/copies-lockstep-"), std::string::npos) << outcome.output;
}

/// Shell words that end everything on the second host, and keep it from being reached.
std::string remove_host(const std::string& folder) {
  return "set -- $(ranks | tail -1); net=$(readlink /proc/$1/ns/net); for p in /proc/[0-9]*; do "
         "[ \"$(readlink $p/ns/net)\" = \"$net\" ] && ! grep -q sleep $p/comm && kill -9 ${p#/proc/}; done "
         "2>/dev/null; "
         "rm '" +
         folder + "/nodeb.pid'";
}

TEST(HealTest, TheJobContinuesWithoutAHost) {
  // mpirun ends a job that loses a host, unless it is told to recover; then the ranks notice the silence of the host.
  const std::vector<std::pair<std::string, std::string>> ways = {{"", ""},
                                                                 {"--enable-recovery ", " --run.heal=shrink"}};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    if (!testing::is_sampled(way, ways.size())) continue;
    const testing::TemporaryFolder folder;
    const ProgramResult outcome =
        disturb_two_hosts(2, folder, ways[way].first, ways[way].second, "await_step 60; " + remove_host(folder.path()));
    if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
    SCOPED_TRACE(ways[way].first);
    expect_healed(outcome, folder.path("run"), {way == 0 ? 2.0 : 1.0});
  }
}

TEST(HealTest, AHostThatFailsTwiceIsLeftOut) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      disturb_two_hosts(1, folder, "", "",
                        "await_step 60; kill -9 $(ranks | tail -1); await_recovery; "
                        "await_step $(($(wc -l <" +
                            folder.path("run") + "/metrics.jsonl) + 20)); kill -9 $(ranks | tail -1)");
  if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
  expect_healed(outcome, folder.path("run"), {2, 2});
  EXPECT_NE(outcome.output.find("a rank on nodeb has died; failures of this host so far: 1"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("failures of this host so far: 2; it is left out"), std::string::npos)
      << outcome.output;
}

/// The time for which runs are disturbed, in seconds: an hour in the long form, unless LOCKSTEP_SOAK_S states another.
double soak_seconds() {
  if (const char* const seconds = std::getenv("LOCKSTEP_SOAK_S")) return std::stod(seconds);
  return testing::is_long_run() ? 3600 : 1;
}

/// Runs a command with a small file system of its own at `folder`, where that is permitted, and keeps what is in it.
ProgramResult run_on_small_disk(const std::string& folder, const std::string& command) {
  const std::string script = folder + ".sh";
  fs::create_directories(folder + "/disk");
  testing::write_file(script, "mount -t tmpfs -o size=8m none " + folder + "/disk\n" + command + "\ncode=$?\ncp -r " +
                                  folder + "/disk/. " + folder + "\nexit $code\n");
  return testing::run_shell("if unshare -m true; then unshare -m bash " + script + "; else bash " + script + "; fi",
                            300);
}

// Ranks are killed and stopped, alone and together, launchers are killed, and the disk fills up, again and again.
TEST(HealTest, RunsThatAreDisturbedAllTheTimeEndAsIfNothingHadHappened) {
  const int steps = testing::is_long_run() ? 15000 : 3000;
  const testing::TemporaryFolder undisturbed;
  ASSERT_EQ(testing::run_ranks(2, arguments_of(undisturbed.path("run"), steps)).exit_code, 0);
  const checkpoints::Archive end = final_state(undisturbed.path("run"), steps);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(soak_seconds());
  int runs = 0;
  std::size_t recoveries = 0;
  do {
    const testing::TemporaryFolder folder;
    const std::string run = folder.path("disk/run");
    const std::string script = "RANDOM=" + std::to_string(some_step()) + "; filler=" + folder.path("disk/filler") +
                               "; metrics=" + run + "/metrics.jsonl" + R"(
      await_step 20
      while kill -0 $heal 2>/dev/null; do
        sleep $((RANDOM % 2 + 1)).$((RANDOM % 10))
        set -- $(ranks)
        [ $# -gt 0 ] || continue
        shift $((RANDOM % $#))
        case $((RANDOM % 7)) in
          0 | 1 | 2) kill -KILL $1 ;;
          3) kill -STOP $1; sleep 0.3; kill -CONT $1 ;;
          4) kill -KILL $(ranks) ;;
          5) kill -KILL $(pgrep -P $heal mpirun) ;;
          6)
            await_step $(($(wc -l <$metrics) + 2)) # else this start still writes its files
            head -c 8M /dev/zero >$filler; kill -KILL $1; sleep 0.5; rm -f $filler ;;
        esac
      done 2>/dev/null)";
    const ProgramResult outcome = run_on_small_disk(
        folder.path(),
        disturbed_run(4, run, "--enable-recovery ", " --run.heal=shrink --ckpt.every=500", script, steps));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    ASSERT_EQ(testing::differences(final_state(folder.path("run"), steps), end), "");
    recoveries += values_in(folder.path("run"), "heal/rung").size();
    ++runs;
  } while (std::chrono::steady_clock::now() < limit);
  std::cout << runs << " runs recovered " << recoveries << " times\n";
  EXPECT_GT(recoveries, 0U);
}

TEST(HealTest, AStopThatWasRequestedIsNoFailure) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult outcome = run_and_disturb(2, run, "", "", "await_step 20; kill -USR2 $heal");
  EXPECT_EQ(outcome.exit_code, 75) << outcome.output;
  EXPECT_TRUE(values_in(run, "heal/rung").empty());
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
  const ProgramResult resumed = testing::run_ranks(2, arguments_of(run) + " --ckpt.memory_every=0 --resume=auto");
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

TEST(HealTest, HealIsNotStartedByALauncher) {
  const ProgramResult outcome = testing::run_ranks(2, "heal true");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("heal starts the launcher"), std::string::npos) << outcome.output;
}

}  // namespace heal_test
}  // namespace lockstep
