// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/heal/supervisor.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "support/temporary_folder.hpp"
#include "trainer/heal/job_hosts.hpp"
#include "trainer/heal/recovery.hpp"

namespace lockstep::trainer {
namespace {

TEST(SupervisorTest, CommandLineBeginsWithItsOwnOptions) {
  const HealCommand command = parse_heal({"--max-heals=2", "mpirun", "-np", "4", "trainer", "--run.dir=a"});
  EXPECT_EQ(command.max_heals, 2);
  EXPECT_EQ(command.launcher, (std::vector<std::string>{"mpirun", "-np", "4", "trainer", "--run.dir=a"}));
  EXPECT_EQ(parse_heal({"srun"}).max_heals, 5);
}

TEST(SupervisorTest, WrongCommandLinesAreRefused) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"--max-heals=2"},
                                                {"--max-heals=x", "srun"},
                                                {"--max-heals=-1", "srun"},
                                                {"--heals=2", "srun"}}) {
    EXPECT_THROW(parse_heal(words), ConfigError);
  }
}

TEST(SupervisorTest, OnlyFailuresThatNeedNotComeAgainAreHealed) {
  const auto heals = [](int exit_code, std::optional<int> told, bool is_stop_requested = false) {
    return can_heal({.exit_code = exit_code, .told = told, .is_stop_requested = is_stop_requested});
  };
  for (const int code : {0, 2, 3, 4, 6, 75, 130}) {
    EXPECT_FALSE(heals(0, code)) << code;
    EXPECT_FALSE(heals(137, code)) << code;
  }
  for (const int code : {2, 3, 4, 6, 75, 130}) EXPECT_FALSE(heals(code, std::nullopt)) << code;
  for (const int code : {1, 5, 7, 70, 137, 139, 205}) EXPECT_TRUE(heals(code, std::nullopt)) << code;
  EXPECT_TRUE(heals(0, std::nullopt));  // mpirun says so when all ranks were killed
  EXPECT_FALSE(heals(137, std::nullopt, true));
}

TEST(SupervisorTest, TheCodeOfTheRunCountsMoreThanThatOfTheLauncher) {
  EXPECT_EQ(exit_code_of({.exit_code = 137, .told = 0}), 0);
  EXPECT_EQ(exit_code_of({.exit_code = 0, .told = 3}), 3);
  EXPECT_EQ(exit_code_of({.exit_code = 5, .told = std::nullopt}), 5);
  EXPECT_EQ(exit_code_of({.exit_code = 0, .told = std::nullopt}), 137);
}

TEST(SupervisorTest, MpirunNamesTheHostOfARankThatHasDied) {
  EXPECT_EQ(host_that_failed("mpirun noticed that process rank 1 with PID 1234 on node b-2.example exited on signal 9 "
                             "(Killed).\n"),
            "b-2.example");
  for (const std::string line :
       {"mpirun noticed that the job aborted, but has no info as to the process that caused that situation.",
        "MPI_ABORT was invoked on rank 1 on node b", "a run on node b exited on signal 9", "", " on node "}) {
    EXPECT_EQ(host_that_failed(line), "") << line;
  }
}

TEST(SupervisorTest, HostsThatHaveFailedTwiceAreLeftOut) {
  const auto names = [](const std::map<std::string, int>& failures) {
    std::string all;
    for (const JobHost& host : reliable({{"a", 2}, {"b", 2}, {"c", 1}}, failures)) all += host.name;
    return all;
  };
  EXPECT_EQ(names({}), "abc");
  EXPECT_EQ(names({{"b", 1}, {"other", 9}}), "abc");
  EXPECT_EQ(names({{"b", 2}}), "ac");
  EXPECT_EQ(names({{"a", 3}, {"b", 2}}), "c");
  EXPECT_EQ(names({{"a", 2}, {"b", 2}, {"c", 2}}), "abc");  // better than none
}

TEST(SupervisorTest, ARestartResumesInTheFolderOfTheRun) {
  const std::vector<std::string> first = {"mpirun", "trainer", "--run.name=a", "--resume=none", "--optim.lr=1"};
  EXPECT_EQ(restart_arguments(first, "runs/a"),
            (std::vector<std::string>{"mpirun", "trainer", "--optim.lr=1", "--resume=auto", "--run.dir=runs/a"}));
  EXPECT_EQ(restart_arguments(first, ""), first);
}

TEST(SupervisorTest, HostsThatAreLeftGetTheRanksThatTheyHaveSlotsFor) {
  const std::vector<std::string> first = {"mpirun", "--host", "a:2,b:2,spare", "-np", "4", "trainer", "--run.dir=x"};
  const std::vector<JobHost> hosts = hosts_in(first);
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[1].name, "b");
  EXPECT_EQ(hosts[1].slots, 2);
  EXPECT_EQ(hosts[2].slots, 1);
  EXPECT_EQ(on_hosts(first, {hosts[0], hosts[2]}),
            (std::vector<std::string>{"mpirun", "--host", "a:2,spare:1", "-np", "3", "trainer", "--run.dir=x"}));
  EXPECT_EQ(on_hosts(first, hosts)[4], "4");  // slots of spare hosts are not more ranks
  EXPECT_EQ(probe_of(first, hosts[1]), (std::vector<std::string>{"mpirun", "--host", "b:1", "-np", "1", "true"}));
  EXPECT_TRUE(hosts_in({"srun", "trainer"}).empty());
}

TEST(ResultFileTest, LinesAreReplacedInPlace) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("result");
  EXPECT_FALSE(read_result(path).step);
  std::ofstream(path).close();
  ResultFile result(path);
  result.put_folder("runs/a b");
  EXPECT_FALSE(read_result(path).step);
  EXPECT_FALSE(read_result(path).code);
  EXPECT_EQ(read_result(path).folder, "runs/a b");
  result.put_step(7);
  result.put_step(123456789012);
  result.put_code(ExitCode::stopped);
  EXPECT_EQ(read_result(path).step, 123456789012);
  EXPECT_EQ(read_result(path).code, 75);
  EXPECT_EQ(read_result(path).folder, "runs/a b");
}

TEST(RecoveryTest, TravelsInTheEnvironment) {
  const Recovery sent{.cause = "the launcher was killed", .failed_at = 1.5, .reached_step = 40};
  setenv("LOCKSTEP_RECOVERY", sent.text().c_str(), 1);
  const auto received = Recovery::of_environment();
  unsetenv("LOCKSTEP_RECOVERY");
  ASSERT_TRUE(received);
  EXPECT_EQ(received->cause, sent.cause);
  EXPECT_EQ(received->failed_at, 1.5);
  EXPECT_EQ(received->reached_step, 40);
  EXPECT_EQ(received->rung, 2);
  EXPECT_FALSE(Recovery::of_environment());
}

}  // namespace
}  // namespace lockstep::trainer
