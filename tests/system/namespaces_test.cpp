// SPDX-License-Identifier: BSD-3-Clause
// A run over two hosts, made of namespaces of this machine, where that is permitted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace namespaces_test {

using testing::ProgramResult;

constexpr int kNotPermitted = 77;

/// How the script is called.
std::string two_hosts(const std::string& folder, const std::string& arguments) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return std::string(source != nullptr ? source : ".") + "/tests/system/two_hosts.sh '" + folder + "' " + arguments;
}

/// Everything that still uses a namespace that the script noted in `folder`, or is mounted from there, two seconds
/// later; a process that was killed may take a moment.
std::string left_behind(const std::string& folder) {
  return testing::run_shell("for i in $(seq 40); do left=$(readlink /proc/[0-9]*/ns/* | sort -u | grep -Fxf '" +
                            folder + "/namespaces'; grep -F '" + folder +
                            "' /proc/self/mountinfo); [ -z \"$left\" ] && break; sleep 0.05; done 2>/dev/null;"
                            " echo -n \"$left\"")
      .output;
}

// Case 123 over a network: the hierarchical backend has the bits of ranks that share one host.
TEST(NamespacesTest, TwoHostsTrainAsOneDoesAndLeaveNothingBehind) {
  const testing::TemporaryFolder folder;
  const std::string arguments =
      " --data.train_size=480 --data.val_size=96 --model.channels=4,8 --model.hidden=16 --log.every=1"
      " --train.max_steps=30 --run.threads=1 --run.dir=";
  const ProgramResult apart =
      testing::run_shell(two_hosts(folder.path(), "2 " + testing::trainer_program() + " --comm.backend=hierarchical" +
                                                      arguments + folder.path("2")),
                         300);
  if (apart.exit_code == kNotPermitted) GTEST_SKIP() << apart.output;
  EXPECT_EQ(left_behind(folder.path()), "");
  ASSERT_EQ(apart.exit_code, 0) << apart.output;
  EXPECT_NE(testing::read_file(folder / "2/env.json").find("nodea nodeb"), std::string::npos);
  ASSERT_EQ(testing::run_ranks(4, "--comm.backend=shm" + arguments + folder.path("1")).exit_code, 0);
  ASSERT_EQ(testing::run_ranks(4, "--run.seed=2" + arguments + folder.path("other")).exit_code, 0);

  const auto end_of = [&](const std::string& run) {
    return checkpoints::read(folder.path(run) + "/ckpt/" + checkpoints::folder_name(30));
  };
  EXPECT_EQ(testing::differences(end_of("2"), end_of("1")), "");
  EXPECT_NE(testing::differences(end_of("2"), end_of("other")), "");  // the comparison can fail
  const auto losses = report::read_series(folder.path("2/metrics.jsonl"), "loss");
  EXPECT_EQ(losses.size(), 30U);
  EXPECT_EQ(losses, report::read_series(folder.path("1/metrics.jsonl"), "loss"));
}

// A script that is killed in the middle takes everything with it.
TEST(NamespacesTest, AKilledRunLeavesNothingBehind) {
  const testing::TemporaryFolder folder;
  const std::string is_up = "[ -e '" + folder.path() + "/running' ]";
  const ProgramResult killed =
      testing::run_shell(two_hosts(folder.path(), "1 bash -c \"touch '" + folder.path() + "/running'; sleep 60\"") +
                         " & job=$!; until " + is_up +
                         " || ! kill -0 $job 2>/dev/null; do sleep 0.05; done;"
                         " kill -KILL $job 2>/dev/null; wait $job");
  if (killed.exit_code == kNotPermitted) GTEST_SKIP() << killed.output;
  EXPECT_EQ(killed.exit_code, 128 + 9) << killed.output;
  EXPECT_NE(testing::read_file(folder / "namespaces"), "");
  EXPECT_EQ(left_behind(folder.path()), "");
}

// Each host has a copy of the state: hosts that are tried on one host give the same bits.
TEST(NamespacesTest, TwoHostsHoldACopyEachAsTriedOnOne) {
  const testing::TemporaryFolder folder;
  const std::string arguments =
      " --data.train_size=480 --data.val_size=96 --model.name=mlp --model.hidden=16"
      " --train.max_steps=10 --train.clip_norm=1 --run.threads=1 --strategy.name=sharded"
      " --strategy.shard_within=host --run.dir=";
  const ProgramResult apart = testing::run_shell(
      two_hosts(folder.path(), "2 " + testing::trainer_program() + arguments + folder.path("2")), 300);
  if (apart.exit_code == kNotPermitted) GTEST_SKIP() << apart.output;
  ASSERT_EQ(apart.exit_code, 0) << apart.output;
  const ProgramResult tried = testing::run_ranks(4, "--comm.hosts=2" + arguments + folder.path("1"));
  ASSERT_EQ(tried.exit_code, 0) << tried.output;
  const auto end_of = [&](const std::string& run) {
    return checkpoints::read(folder.path(run) + "/ckpt/" + checkpoints::folder_name(10));
  };
  EXPECT_EQ(testing::differences(end_of("2"), end_of("1")), "");
  EXPECT_EQ(end_of("2").integer("/", "shard_copies"), 2);
}

}  // namespace namespaces_test
}  // namespace lockstep
