// SPDX-License-Identifier: BSD-3-Clause
// Real processes that are killed or stopped in the middle of their work.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

#include "support/program.hpp"

namespace lockstep::mpi {
namespace lost_peer_test {

lockstep::testing::ProgramResult run_job(const std::string& arguments) {
  constexpr double kLimitSeconds = 60;
  return lockstep::testing::run_shell(std::string("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ") +
                                          LOCKSTEP_MPIRUN_COMMAND + " -np 3 " + LOCKSTEP_PEER_HELPER + " " + arguments,
                                      kLimitSeconds);
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

/// A rank has gone without a word. Open MPI's mpirun returns the signal plus 128, and the others say who is missing
/// before it ends them. That of MPICH ends them at once, with other numbers.
void expect_end_of_survivors(const lockstep::testing::ProgramResult& outcome, int exit_code, const std::string& words) {
  if (LOCKSTEP_HAS_OPEN_MPI) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
    EXPECT_TRUE(has(outcome.output, words)) << outcome.output;
  } else {
    EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  }
}

// Case 104. Both survivors come to know within a moment, one from the dead rank and one from the other.
TEST(LostPeerTest, AKilledRankIsNamedByTheSurvivorsOnItsHost) {
  for (const std::string backend : {"shm", "hierarchical"}) {
    const auto outcome = run_job(backend + " kill");
    for (const char* const words :
         {"rank 0 says: comm: ", "rank 1 (last seen in all_reduce #", ") has died while rank "}) {
      expect_end_of_survivors(outcome, 128 + SIGKILL, words);
    }
  }
}

TEST(LostPeerTest, AKilledRankEndsTheJobOfPlainMpi) { expect_end_of_survivors(run_job("mpi kill"), 128 + SIGKILL, ""); }

// Cases 97 and 102. Survivors linger for 20 s when they have said who is missing, so a job that ends before was ended.
TEST(LostPeerTest, HoweverARankEndsTheJobEndsWithIt) {
  struct Way {
    const char* arguments;
    int exit_code;
    const char* words;  // words of a survivor, or of the rank itself
    bool is_of_survivor = true;
  };
  const Way ways[] = {
      {"kill", 128 + SIGKILL, "rank 1 (last seen in all_reduce #"},
      {"term", 128 + SIGTERM, "rank 1 (last seen in all_reduce #"},
      {"abort", 128 + SIGABRT, "rank 1 (last seen in all_reduce #"},
      {"vanish 1", 1, "rank 1 (last seen in all_reduce #"},
      {"vanish 0", 1, "rank 1 (last seen in all_reduce #"},  // mpirun calls that improper
      {"exit 0", 70, "lockstep: rank 1: the program called exit before the job ended", false},
      {"exit 1", 70, "lockstep: rank 1: the program called exit before the job ended", false},
  };
  for (const Way& way : ways) {
    if (!LOCKSTEP_HAS_OPEN_MPI && std::string(way.arguments) == "vanish 0") continue;  // taken for success
    const auto begin = std::chrono::steady_clock::now();
    const auto outcome = run_job(std::string("shm ") + way.arguments);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    SCOPED_TRACE(way.arguments);
    if (way.is_of_survivor) {
      expect_end_of_survivors(outcome, way.exit_code, way.words);
    } else {
      EXPECT_EQ(outcome.exit_code, way.exit_code) << outcome.output;
      EXPECT_TRUE(has(outcome.output, way.words)) << outcome.output;
    }
    EXPECT_LT(seconds.count(), 15) << way.arguments;
  }
}

// Case 109: whatever happens to a job, nothing of it stays behind.
TEST(LostPeerTest, AKilledRankLeavesNoSharedMemoryBehind) {
  run_job("shm kill");
  const std::filesystem::directory_iterator files("/dev/shm");
  EXPECT_EQ(std::count_if(begin(files), end(files),
                          [](const auto& file) { return file.path().filename().string().starts_with("lockstep"); }),
            0);
}

// Case 105.
TEST(LostPeerTest, ARankThatStopsForAWhileIsWaitedFor) {
  for (const std::string backend : {"shm", "mpi", "hierarchical"}) {
    const auto outcome = run_job(backend + " stop 1 20");
    EXPECT_EQ(outcome.exit_code, 0) << backend << ": " << outcome.output;
    EXPECT_EQ(outcome.output, "") << backend;
  }
}

// Case 102.
TEST(LostPeerTest, ARankThatStopsForTooLongIsNamed) {
  for (const std::string backend : {"shm", "mpi"}) {
    const auto outcome = run_job(backend + " stop 4 1");
    EXPECT_EQ(outcome.exit_code, 5) << backend << ": " << outcome.output;
    EXPECT_TRUE(has(outcome.output, "rank 0 says: comm: ") || has(outcome.output, "rank 2 says: comm: "))
        << backend << ": " << outcome.output;
    EXPECT_TRUE(has(outcome.output, "for rank 1")) << backend << ": " << outcome.output;
  }
}

}  // namespace lost_peer_test
}  // namespace lockstep::mpi
