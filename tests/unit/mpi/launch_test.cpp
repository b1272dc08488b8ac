// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/launch.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <vector>

#include "mpi/gpu/gpu_placement.hpp"
#include "mpi/process/topology.hpp"
#include "support/program.hpp"

namespace lockstep::mpi {
namespace launch_test {

Variables with(Variables base, const Variables& more) {
  base.insert(more.begin(), more.end());
  return base;
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"PMIX_RANK", "0"}};
const Variables kHydra = {{"MPI_LOCALNRANKS", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};  // MPICH's launcher
const Variables kAllocation = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}};
const Variables kBatch = with(kAllocation, {{"SLURM_PROCID", "0"}});
const Variables kStep = with(kBatch, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}});

TEST(LauncherTest, IsStatedByTheLauncher) {
  EXPECT_EQ(launcher_of({}), "none");
  EXPECT_EQ(launcher_of({{"WORLD_SIZE", "8"}, {"RANK", "3"}}), "none");  // variables of some other program
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

TEST(AffinityTest, ReadsListsOfLinux) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), Cpus{5});
  EXPECT_EQ(parse_cpu_list("3,1-2,2"), (Cpus{1, 2, 3}));
  for (const char* const none : {"", "\n", "a", "3-1", "1-", "-1", "1,,2", "99999999"}) {
    EXPECT_EQ(parse_cpu_list(none), Cpus()) << none;
  }
  EXPECT_EQ(cpus_in(std::string("\x05\x80", 2)), (Cpus{0, 2, 15}));
}

TEST(AffinityTest, ThreadsOfACoreCountOnce) {
  const testing::TemporaryFolder root;
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string core = std::to_string(cpu % 2);
    const std::filesystem::path folder = root / ("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology");
    std::filesystem::create_directories(folder);
    testing::write_file(folder / "thread_siblings_list", core + "," + std::to_string(cpu % 2 + 2) + "\n");
  }
  const auto core_of = cores_of({0, 1, 2, 3, 7}, root.path());
  EXPECT_EQ(core_of, (std::map<int, int>{{0, 0}, {1, 1}, {2, 0}, {3, 1}, {7, 7}}));
  EXPECT_EQ(count_cores({0, 2}, core_of), 1);
  EXPECT_EQ(count_cores({0, 1, 2, 7}, core_of), 3);
}

TEST(AffinityTest, BindsTheProcess) {
  const Cpus all = cpus_in(affinity_mask());
  EXPECT_TRUE(bind_process({all.front()}));
  EXPECT_EQ(cpus_in(affinity_mask()), Cpus{all.front()});
  EXPECT_TRUE(bind_process(all));
  EXPECT_EQ(cpus_in(affinity_mask()), all);
}

TEST(BoundTest, IsStatedByTheLauncher) {
  EXPECT_FALSE(is_bound_by_launcher({}));
  EXPECT_TRUE(is_bound_by_launcher({{"OMPI_MCA_orte_bound_at_launch", "1"}}));
  EXPECT_TRUE(is_bound_by_launcher({{"SLURM_CPU_BIND_TYPE", "mask_cpu:"}}));
  EXPECT_FALSE(is_bound_by_launcher({{"SLURM_CPU_BIND_TYPE", "none"}}));
}

Cpus range(int begin, int end) {
  Cpus cpus;
  for (int cpu = begin; cpu < end; ++cpu) cpus.push_back(cpu);
  return cpus;
}

/// A host with two sockets of eight cores with two threads each: core c has the processors c and c + 16.
class GpuPlacementTest : public ::testing::Test {
 protected:
  static GpuNeighborhood near_first_socket(int position, int ranks) {
    GpuNeighborhood neighborhood{
        .allowed = range(0, 32), .near = with_siblings(0, 8), .position = position, .ranks = ranks};
    for (const int cpu : neighborhood.allowed) neighborhood.core_of[cpu] = cpu % 16;
    return neighborhood;
  }

  static Cpus with_siblings(int begin, int end) {
    Cpus cpus = range(begin, end);
    const Cpus siblings = range(begin + 16, end + 16);
    cpus.insert(cpus.end(), siblings.begin(), siblings.end());
    return cpus;
  }
};

TEST_F(GpuPlacementTest, RanksNearTheSameCoresDivideThem) {
  EXPECT_EQ(processors_near_gpu(near_first_socket(0, 1)), with_siblings(0, 8));
  EXPECT_EQ(processors_near_gpu(near_first_socket(0, 2)), with_siblings(0, 4));
  EXPECT_EQ(processors_near_gpu(near_first_socket(1, 2)), with_siblings(4, 8));
}

TEST_F(GpuPlacementTest, RanksShareCoresThatAreTooFew) {
  for (int position = 0; position < 4; ++position) {
    EXPECT_EQ(processors_near_gpu(near_first_socket(position, 4)), with_siblings(0, 8)) << position;
  }
}

TEST_F(GpuPlacementTest, OnlyAllowedProcessorsAreTaken) {
  GpuNeighborhood neighborhood = near_first_socket(0, 1);
  neighborhood.allowed = range(6, 14);
  EXPECT_EQ(processors_near_gpu(neighborhood), range(6, 8));
  neighborhood.allowed = range(8, 16);
  EXPECT_EQ(processors_near_gpu(neighborhood), Cpus()) << "no processor of the mask is near";
  neighborhood.allowed = range(0, 4);
  EXPECT_EQ(processors_near_gpu(neighborhood), Cpus()) << "nothing would change";
  neighborhood.near = {};
  EXPECT_EQ(processors_near_gpu(neighborhood), Cpus()) << "nothing is known";
}

TEST_F(GpuPlacementTest, TheSystemNamesTheProcessorsNearADevice) {
  const testing::TemporaryFolder root;
  const std::filesystem::path folder = root / "sys/bus/pci/devices/0000:3b:00.0";
  std::filesystem::create_directories(folder);
  testing::write_file(folder / "local_cpulist", "0-7,16-23\n");
  EXPECT_EQ(processors_near_device("0000:3B:00.0", root.path()), with_siblings(0, 8));
  EXPECT_EQ(processors_near_device("0000:3C:00.0", root.path()), Cpus());
}

TEST_F(GpuPlacementTest, AGpuThatIsHiddenCannotBeOpened) {
  const testing::TemporaryFolder root;
  const std::filesystem::path folder = root / "proc/driver/nvidia/gpus/0000:3b:00.0";
  std::filesystem::create_directories(folder);
  std::filesystem::create_directories(root / "dev");
  testing::write_file(folder / "information", "Model: \t\t GPU 9\nDevice Minor: \t 12\nGPU Excluded:\t No\n");
  EXPECT_FALSE(can_open_gpu("0000:3B:00.0", root.path()));
  testing::write_file(root / "dev/nvidia12", "");
  EXPECT_TRUE(can_open_gpu("0000:3B:00.0", root.path()));
  EXPECT_FALSE(can_open_gpu("0000:3C:00.0", root.path()));
}

}  // namespace launch_test
}  // namespace lockstep::mpi
