// SPDX-License-Identifier: BSD-3-Clause
// Runs that are disturbed all the time, on one host and on two, end as if nothing had happened.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "checkpoints/store/store.hpp"
#include "heal_runs.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace soak_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

/// The time for which runs are disturbed, in seconds: an hour in the long form, unless LOCKSTEP_SOAK_S states another.
double seconds() {
  if (const char* const seconds = std::getenv("LOCKSTEP_SOAK_S")) return std::stod(seconds);
  return testing::is_long_run() ? 3600 : 1;
}

int steps() { return testing::is_long_run() ? 15000 : 2000; }

/// A program and a run whose bits do not depend on the number of ranks. The last rank reads its samples from `file`,
/// where that exists.
std::string words(const std::string& file) {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return "env LOCKSTEP_FAILS=file LOCKSTEP_STAMP=" + file + " " + (binaries != nullptr ? binaries : ".") +
         "/tests/system/failing_program train --data.name=samples --model.name=mlp --model.hidden=64 "
         "--optim.name=adamw --train.lanes=4 --train.global_batch_size=16 --run.threads=1 --log.every=1 "
         "--eval.every=never --ckpt.memory_every=10 --ckpt.every=500 --comm.timeout_s=4 --train.max_steps=" +
         std::to_string(steps());
}

/// A script of the shell that disturbs a run in `folder` as long as it lasts: ranks are killed and stopped, alone and
/// together, launchers are killed, the disk fills up, and a file hangs, for less than comm.timeout_s or for more.
/// Two hosts: the second one is removed, too.
std::string disturbances(const std::string& folder, bool are_two_hosts) {
  return "RANDOM=" + std::to_string(testing::drawn_between(1, 30000)) + "; filler=" + folder +
         "/disk/filler; file=" + folder + R"(/file
remove_host() {
)" + (are_two_hosts ? testing::remove_second_host(folder) : ":") +
         R"(
}
await_step 20
while kill -0 $heal; do
  sleep $((RANDOM % 2 + 1)).$((RANDOM % 10))
  # Starts are disturbed, too, but not all of them.
  [ $((RANDOM % 3)) = 0 ] || await_step $(($(wc -l <$metrics) + 2))
  set -- $(ranks)
  [ $# -gt 0 ] || continue
  shift $((RANDOM % $#))
  case $((RANDOM % 10)) in
    0 | 1 | 2) kill -KILL $1 ;;
    3) kill -STOP $1; sleep 0.3; kill -CONT $1 ;;
    4) kill -KILL $(ranks) ;;
    5) kill -KILL $(launchers) ;;
    6)
      await_step $(($(wc -l <$metrics) + 2)) # else this start still writes its files
      head -c 32M /dev/zero >$filler; kill -KILL $1; sleep 0.5; rm -f $filler ;;
    7) mkfifo $file; sleep 1; timeout 1 sh -c ": >$file"; rm -f $file ;;
    8) mkfifo $file; sleep 6; timeout 1 sh -c ": >$file"; rm -f $file ;;
    9) remove_host ;;
  esac
done 2>/dev/null)";
}

/// Runs a command with a small file system of its own at `folder`/disk, where that is permitted, and keeps what is in
/// it.
ProgramResult run_on_small_disk(const std::string& folder, const std::string& command) {
  const std::string script = folder + ".sh";
  fs::create_directories(folder + "/disk");
  testing::write_file(script, "mount -t tmpfs -o size=32m none " + folder + "/disk\n" + command +
                                  "\ncode=$?\n[ $code = 0 ] || { df -k " + folder + "/disk; du -ak " + folder +
                                  "/disk | sort -n | tail -n 30; }\ncp -r " + folder + "/disk/. " + folder +
                                  "\nexit $code\n");
  return testing::run_shell("if unshare -m true; then unshare -m bash " + script + "; else bash " + script + "; fi",
                            testing::is_long_run() ? 2700 : 900);
}

checkpoints::Archive final_state(const std::string& folder) {
  return checkpoints::read(checkpoints::checkpoint_of(folder + "/run/ckpt", steps()));
}

TEST(SoakTest, RunsThatAreDisturbedAllTheTimeEndAsIfNothingHadHappened) {
  const testing::TemporaryFolder undisturbed;
  ASSERT_EQ(testing::run_shell(testing::mpirun_command(2) + " " + words("/dev/null") +
                               " --run.dir=" + undisturbed.path("run"))
                .exit_code,
            0);
  const checkpoints::Archive end = final_state(undisturbed.path());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds());
  std::size_t runs = 0;
  std::size_t runs_on_two_hosts = 0;
  std::size_t recoveries = 0;
  do {
    const testing::TemporaryFolder folder;
    const bool are_two_hosts = testing::is_long_run() && runs % 2 == 1;
    const testing::DisturbedRun run = {.folder = folder.path("disk/run"),
                                       .words = words(folder.path("file")) + " --run.heal=shrink",
                                       .flags = "--enable-recovery ",
                                       .script = disturbances(folder.path(), are_two_hosts)};
    const ProgramResult outcome = run_on_small_disk(
        folder.path(), are_two_hosts ? testing::on_two_hosts(2, folder.path(), run) : testing::on_one_host(4, run));
    ++runs;
    if (are_two_hosts && outcome.exit_code == testing::kNoTwoHosts) continue;
    runs_on_two_hosts += are_two_hosts ? 1 : 0;
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    ASSERT_EQ(testing::differences(final_state(folder.path()), end), "");
    recoveries += testing::values_in(folder.path("run"), "heal/rung").size();
    std::cout << runs << " runs, " << runs_on_two_hosts << " of them on two hosts, recovered " << recoveries << " times"
              << std::endl;
  } while (std::chrono::steady_clock::now() < limit);
  EXPECT_GT(recoveries, 0U);
}

}  // namespace soak_test
}  // namespace lockstep
