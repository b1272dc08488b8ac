// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {
namespace peer_watch_test {

TEST(PeerWatchTest, SeesTheDeathOfAProcessThatNobodyHasReaped) {
  const ProcessId mine = ProcessId::mine();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  const PeerWatch watch({mine, {.pid = child, .name_space = mine.name_space}});
  EXPECT_FALSE(watch.is_dead(0));
  EXPECT_FALSE(watch.is_dead(1));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);  // dead, but still a zombie
  EXPECT_FALSE(watch.is_dead(0));
  EXPECT_TRUE(watch.is_dead(1));
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(watch.is_dead(1));
}

TEST(PeerWatchTest, AProcessOfAnotherNameSpaceCountsAsAlive) {
  const ProcessId mine = ProcessId::mine();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  const PeerWatch watch({{.pid = child, .name_space = mine.name_space + 1}});
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(watch.is_dead(0));
}

}  // namespace peer_watch_test
}  // namespace lockstep::mpi
