// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "mpi/process/launch.hpp"
#include "support/program.hpp"

namespace lockstep::mpi {
namespace slurm_test {

TEST(SlurmTest, OnlyAJobsIdMakesAJob) {
  EXPECT_FALSE(slurm_job_of({}));
  EXPECT_FALSE(slurm_job_of({{"SLURM_NTASKS", "2"}}));
  EXPECT_FALSE(slurm_job_of({{"SLURM_JOB_ID", "7; rm -r"}}));
  EXPECT_EQ(slurm_job_of({{"SLURM_JOB_ID", "7"}})->id, "7");
  EXPECT_EQ(slurm_job_of({{"SLURM_JOBID", "8"}})->id, "8");
  EXPECT_EQ(slurm_job_of({{"SLURM_JOB_ID", "7"}})->array_task, "");
  const auto task = slurm_job_of({{"SLURM_JOB_ID", "9"}, {"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "2"}});
  EXPECT_EQ(task->array_id + "_" + task->array_task, "7_2");
}

TEST(SlurmTest, CountsRestarts) {
  EXPECT_EQ(slurm_job_of({{"SLURM_JOB_ID", "7"}})->restarts, 0);
  EXPECT_EQ(slurm_job_of({{"SLURM_JOB_ID", "7"}, {"SLURM_RESTART_COUNT", "3"}})->restarts, 3);
}

// Table 6.1: slurm signals the tasks of srun's steps, but neither the batch script nor what mpirun starts from it.
TEST(SlurmTest, TasksOfAStepHearSlurmsSignals) {
  EXPECT_FALSE(slurm_job_of({{"SLURM_JOB_ID", "7"}})->is_step_task);
  EXPECT_TRUE(slurm_job_of({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}})->is_step_task);
  EXPECT_FALSE(slurm_job_of({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "4294967291"}})->is_step_task);
  const Variables by_mpirun = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_FALSE(slurm_job_of(by_mpirun)->is_step_task);
}

TEST(SlurmTest, TheEndThatTheEnvironmentStatesCounts) {
  const auto end = static_cast<double>(std::time(nullptr) + 100);
  const auto left = seconds_left({.id = "7", .end = end});
  ASSERT_TRUE(left);
  EXPECT_LE(*left, 100);
  EXPECT_GT(*left, 90);
}

/// Seconds left by what a program named squeue does.
std::optional<double> left_by(const std::string& script) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "squeue", "#!/bin/bash\n[[ $* == '-h -j 7 -O TimeLeft' ]] || exit 1\n" + script);
  std::filesystem::permissions(folder / "squeue", std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  const auto left = seconds_left({.id = "7"});
  setenv("PATH", path.c_str(), 1);
  return left;
}

TEST(SlurmTest, ElseWhatSqueueAnswers) {
  EXPECT_EQ(left_by("echo '3:00                '"), 180);
  EXPECT_EQ(left_by("echo 1-02:03:04"), 93784);
  EXPECT_EQ(left_by("echo UNLIMITED"), std::nullopt);
  EXPECT_EQ(left_by("echo no such job >&2; exit 1"), std::nullopt);
}

}  // namespace slurm_test
}  // namespace lockstep::mpi
