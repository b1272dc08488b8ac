// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/launch.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "mpi/affinity.hpp"

namespace lockstep::mpi {
namespace launch_test {

Variables with(Variables base, const Variables& more) {
  base.insert(more.begin(), more.end());
  return base;
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"PMIX_RANK", "0"}};
const Variables kHydra = {{"MPI_LOCALNRANKS", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};  // of MPICH
const Variables kAllocation = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}};
const Variables kBatch = with(kAllocation, {{"SLURM_PROCID", "0"}});
const Variables kStep = with(kBatch, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}});

TEST(LauncherTest, IsStatedByTheLauncher) {
  EXPECT_EQ(launcher_of({}), "none");
  EXPECT_EQ(launcher_of({{"WORLD_SIZE", "8"}, {"RANK", "3"}}), "none");  // of some other program
  EXPECT_EQ(launcher_of(kMpirun), "mpirun");
  EXPECT_EQ(launcher_of(kHydra), "mpirun");
  EXPECT_EQ(launcher_of(kStep), "srun");
  EXPECT_EQ(launcher_of(kBatch), "none");
  EXPECT_EQ(launcher_of(with(kBatch, kMpirun)), "mpirun");
  EXPECT_EQ(launcher_of(with(kStep, kMpirun)), "mpirun");
}

TEST(LaunchFaultTest, FindsTheSingletonsOfSrunAndNothingElse) {
  struct Case {
    const char* how;
    Variables variables;
    int world_size;
    bool is_fault;
  };
  const std::vector<Case> cases = {
      {"plain run", {}, 1, false},
      {"plain run, before MPI", {}, 0, false},
      {"mpirun -np 1", kMpirun, 1, false},
      {"plain run within salloc", kAllocation, 1, false},
      {"plain run in a batch script", kBatch, 1, false},
      {"batch script that numbers its step", with(kBatch, {{"SLURM_STEP_ID", "4294967291"}}), 1, false},
      {"shell of an interactive step", with(kBatch, {{"SLURM_STEP_ID", "4294967290"}}), 1, false},
      {"batch step by name", with(kBatch, {{"SLURM_STEP_ID", "batch"}}), 1, false},
      {"mpirun -np 1 in a batch script", with(kBatch, kMpirun), 1, false},
      {"mpirun -np 1 in a step", with(kStep, kMpirun), 1, false},
      {"MPICH's mpirun -np 1 in a step", with(kStep, kHydra), 1, false},
      {"srun -n 1", with(kBatch, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), 1, false},
      {"srun --mpi=pmix -n 4", with(kStep, {{"PMIX_RANK", "2"}}), 4, false},
      {"srun --mpi=pmix -n 4, before MPI", with(kStep, {{"PMIX_RANK", "2"}}), 0, false},
      {"srun --mpi=pmi2 -n 4, before MPI", with(kStep, {{"PMI_RANK", "2"}}), 0, false},
      {"srun -n 4", kStep, 1, true},
      {"srun -n 4, before MPI", kStep, 0, true},
      {"srun -n 4, seen as world", kStep, 4, false},
      {"srun -n 4, old names", with(kBatch, {{"SLURM_STEPID", "12"}}), 1, true},
      {"srun --mpi=pmix with an MPI that ignores it", with(kStep, {{"PMIX_RANK", "2"}}), 1, true},
  };
  for (const Case& tried : cases) {
    const std::string fault = launch_fault(tried.variables, tried.world_size);
    EXPECT_EQ(!fault.empty(), tried.is_fault) << tried.how << ": " << fault;
    EXPECT_EQ(fault.find("srun --mpi=pmix") != std::string::npos, tried.is_fault) << tried.how << ": " << fault;
  }
}

TEST(RanksOnHostTest, ReadsAllLaunchers) {
  EXPECT_EQ(ranks_on_host({}), 0);
  EXPECT_EQ(ranks_on_host({{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}), 3);
  EXPECT_EQ(ranks_on_host({{"MPI_LOCALNRANKS", "3"}}), 3);
  EXPECT_EQ(ranks_on_host(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "8"}})), 8);
  EXPECT_EQ(ranks_on_host(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3),5,1"}})), 5);
  EXPECT_EQ(ranks_on_host(with(kBatch, {{"SLURM_STEP_TASKS_PER_NODE", "8"}})), 0);
}

TEST(StartSettingsTest, FastTransportUnlessSomebodyChoseOrAFabricIsThere) {
  const Variables fast = {{"OMPI_MCA_pml", "ob1"}};
  EXPECT_EQ(start_settings({}, {}), fast);
  EXPECT_EQ(start_settings({}, {.has_fabric = true}), Variables());
  EXPECT_EQ(start_settings({{"OMPI_MCA_pml", "ucx"}}, {}), Variables());
  EXPECT_EQ(start_settings({{"OMPI_MCA_btl", "self,tcp"}}, {}), Variables());
  EXPECT_EQ(start_settings({{"OMPI_MCA_mtl", "psm2"}}, {}), Variables());
}

TEST(StartSettingsTest, YieldsOnlyWhenRanksOutnumberSharedProcessors) {
  const HostFacts two_cpus{.has_fabric = true, .cpus = 2};
  const Variables yield = {{"OMPI_MCA_mpi_yield_when_idle", "1"}};
  const Variables four = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  EXPECT_EQ(start_settings(four, two_cpus), yield);
  EXPECT_EQ(start_settings(four, {.has_fabric = true, .cpus = 4}), Variables());
  EXPECT_EQ(start_settings(with(four, {{"OMPI_MCA_orte_bound_at_launch", "1"}}), two_cpus), Variables());
  EXPECT_EQ(start_settings(with(four, {{"OMPI_MCA_mpi_yield_when_idle", "0"}}), two_cpus), Variables());
  EXPECT_EQ(start_settings(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "4"}}), two_cpus), yield);
  EXPECT_EQ(
      start_settings(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "4"}, {"SLURM_CPU_BIND_TYPE", "mask_cpu:"}}), two_cpus),
      Variables());
}

TEST(AffinityTest, CountsAndUnitesMasks) {
  EXPECT_EQ(count_cpus("\x05"), 2);
  EXPECT_EQ(count_cpus(""), 1);
  EXPECT_EQ(count_cpus(union_of("\x05", "\x06\x01")), 4);
  EXPECT_EQ(count_cpus(union_of("\x05\x80", "\x01")), 3);
  EXPECT_EQ(union_of(affinity_mask(), affinity_mask()), affinity_mask());
}

}  // namespace launch_test
}  // namespace lockstep::mpi
