// SPDX-License-Identifier: BSD-3-Clause
// `trainer doctor` on machines that are made ill. Not testable here, and made of facts in FindingsTest: quotas, which
// need a kernel with that option; GPUs, their NCCL and differing drivers; ranks that cannot share a memfd.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace doctor_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

/// The output of the command, alone, after the words of a shell.
ProgramResult alone(const std::string& before, const std::string& options = "") {
  return testing::run_shell(before + " " + testing::trainer_program() + " doctor --run.threads=1 " + options);
}

constexpr int kNotPermitted = 77;  // exit code of two_hosts.sh

/// The output of the command on two hosts of this machine, on each rank after a script.
ProgramResult on_two_hosts(const testing::TemporaryFolder& folder, int ranks_per_host, const std::string& script,
                           const std::string& options = "") {
  testing::write_file(folder.path("rank.sh"),
                      script + "\nexec " + testing::trainer_program() + " doctor --run.threads=1 " + options + "\n");
  return testing::run_shell("'" + (testing::source_root() / "tests/system/two_hosts.sh").string() + "' '" +
                            folder.path() + "' " + std::to_string(ranks_per_host) + " bash '" + folder.path("rank.sh") +
                            "'");
}

/// Whether this user may mount file systems in a namespace.
bool can_mount() { return testing::run_shell("unshare -m mount -t tmpfs -o size=8m tmpfs /dev/shm").exit_code == 0; }

/// The output of the command, alone, where `mounts` have changed the file system.
ProgramResult after_mounts(const std::string& mounts, const std::string& options = "") {
  return testing::run_shell("unshare -m sh -c '" + mounts + " && exec \"$0\" doctor --run.threads=1 " + options + "' " +
                            testing::trainer_program());
}

void expect_said(const ProgramResult& outcome, int exit_code, const std::string& words) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
  EXPECT_NE(outcome.output.find(words), std::string::npos) << words << " is missing in: " << outcome.output;
}

TEST(DoctorTest, ThisMachineCanTrain) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome =
      testing::run_ranks(3, "doctor --json --run.threads=1 --run.dir=" + folder.path("a/run"));
  ASSERT_EQ(outcome.rank_codes, (std::vector<int>{0, 0, 0})) << outcome.output;
  const std::size_t begin = outcome.output.find("[\n");
  ASSERT_NE(begin, std::string::npos) << outcome.output;
  const auto findings = nlohmann::json::parse(outcome.output.substr(begin, outcome.output.rfind(']') + 1 - begin));
  std::string subjects;
  for (const auto& finding : findings) {
    EXPECT_NE(finding.at("verdict"), "fault") << finding;
    if (finding.at("verdict") == "ok") subjects += finding.at("subject").get<std::string>() + " ";
    if (finding.at("subject") == "network") {
      EXPECT_NE(finding.at("evidence").get<std::string>().find("inside a host"), std::string::npos) << finding;
    }
  }
  for (const char* subject : {"processor", "network", "files", "slurm", "gpu"}) {
    EXPECT_NE(subjects.find(subject), std::string::npos) << subject << " is missing in: " << outcome.output;
  }
  EXPECT_FALSE(fs::exists(folder / "a/run"));
}

TEST(DoctorTest, ALauncherOfAnotherMpiIsNamed) {
  expect_said(alone("PMI_SIZE=4"), 2, "the launcher started 4 ranks, but MPI sees 1");
}

TEST(DoctorTest, FewerProcessorsThanThreadsAreNamed) {
  expect_said(testing::run_shell("taskset -c 0 " + testing::trainer_program() + " doctor --run.threads=2"), 0,
              "has 2 threads, but may use 1 of the processors");
}

TEST(DoctorTest, AFolderThatCannotBeWrittenIsAFault) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("file"), "");
  const ProgramResult outcome = testing::run_ranks(2, "doctor --run.threads=1 --run.dir=" + folder.path("file/run"));
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
  EXPECT_NE(outcome.output.find("fault     files      rank 0 on "), std::string::npos) << outcome.output;
}

TEST(DoctorTest, OtherVariablesAndProgramsOnARankAreNamed) {
  const testing::TemporaryFolder folder;
  const std::string trainer = testing::trainer_program();
  const auto pair = [&](const std::string& first, const std::string& second) {
    const std::string words = " doctor --run.threads=1";
    return testing::run_shell(testing::mpirun_command(1) + " " + first + words + " : -np 1 " + second + words);
  };
  expect_said(pair("env OMP_PROC_BIND=true " + trainer, trainer), 0,
              "the variable OMP_PROC_BIND is true on rank 0, but not set on rank 1");
  testing::run_shell("cp " + trainer + " " + folder.path("trainer") + "; printf x >> " + folder.path("trainer"));
  expect_said(pair(trainer, folder.path("trainer")), 2, "runs another program file than rank 0");
}

TEST(DoctorTest, SmallSharedMemoryIsAFault) {
  if (!can_mount()) GTEST_SKIP() << "this user may not mount";
  const ProgramResult outcome =
      testing::run_shell("unshare -m sh -c 'mount -t tmpfs -o size=12m tmpfs /dev/shm; exec \"$@\"' sh " +
                         testing::mpirun_command(3) + " " + testing::trainer_program() + " doctor --run.threads=1");
  expect_said(outcome, 2, "MB free of 13, but the need of 3 ranks is 15 MB for messages");
}

TEST(DoctorTest, ConfigurationsThatNeedMoreMemoryAreAFault) {
  const ProgramResult outcome = alone("", "--model.name=mlp --model.hidden=1048576,1048576");
  expect_said(outcome, 2, "fault     memory ");
  expect_said(outcome, 2, ", but the need of 1 rank is ");
}

TEST(DoctorTest, TheLimitOfTheControlGroupIsNamed) {
  // A group can be removed a moment after its last process has ended.
  const ProgramResult outcome = testing::run_shell(
      "group=/sys/fs/cgroup/memory/lockstep_doctor_test_$$; mkdir $group || exit 77\n"
      "echo 500M >$group/memory.limit_in_bytes && (echo 0 >$group/cgroup.procs && exec " +
      testing::trainer_program() +
      " doctor --run.threads=1); code=$?\n"
      "for i in $(seq 100); do rmdir $group 2>/dev/null && break; sleep 0.05; done; exit $code");
  if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
  expect_said(outcome, 0, " MB of memory of 524 that its control group allows");
}

TEST(DoctorTest, SmallPagesAreNamed) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("enabled"), "always madvise [never]\n");
  if (!can_mount()) GTEST_SKIP() << "this user may not mount";
  expect_said(after_mounts("mount --bind " + folder.path("enabled") + " /sys/kernel/mm/transparent_hugepage/enabled"),
              0, "never uses transparent huge pages");
}

TEST(DoctorTest, ProcessorsOfSeveralNodesAreNamed) {
  const testing::TemporaryFolder folder;
  for (const int node : {0, 1}) {
    const fs::path path = folder / ("node" + std::to_string(node));
    fs::create_directory(path);
    testing::write_file(path / "cpulist", std::to_string(node) + "\n");
  }
  if (!can_mount()) GTEST_SKIP() << "this user may not mount";
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  expect_said(after_mounts("mount --bind " + folder.path() + " /sys/devices/system/node"), 0,
              "may use the processors of 2 NUMA nodes, but its thread would fit into one");
}

// Two processors become hardware threads of one core, and the system gets further processors.
TEST(DoctorTest, RanksOnOneCoreAreNamed) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("siblings"), "0-1\n");
  testing::write_file(folder.path("online"), "0-1,1022-1023\n");
  if (!can_mount()) GTEST_SKIP() << "this user may not mount";
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  std::string mounts = "mount --bind " + folder.path("online") + " /sys/devices/system/cpu/online";
  for (const char* const cpu : {"cpu0", "cpu1"}) {
    mounts += " && mount --bind " + folder.path("siblings") + " /sys/devices/system/cpu/" + cpu +
              "/topology/thread_siblings_list";
  }
  const std::string doctor = testing::trainer_program() + " doctor --run.threads=1";
  const ProgramResult outcome =
      testing::run_shell("unshare -m sh -c '" + mounts + " && exec \"$@\"' sh " + testing::mpirun_command(1) +
                         " taskset -c 0 " + doctor + " : -np 1 taskset -c 1 " + doctor);
  expect_said(outcome, 0, "rank 0 and rank 1 on ");
  expect_said(outcome, 0, "share the hardware threads of one core, but 2 cores have no rank");
}

TEST(DoctorTest, CheckpointsThatDoNotFitAreNamed) {
  const testing::TemporaryFolder folder;
  if (!can_mount()) GTEST_SKIP() << "this user may not mount";
  const auto in_space_of = [&](const std::string& size) {
    return after_mounts("mount -t tmpfs -o size=" + size + " tmpfs " + folder.path(),
                        "--run.dir=" + folder.path() + " --model.name=mlp --model.hidden=1000");
  };
  expect_said(in_space_of("6m"), 2, "GB free, but a checkpoint needs 0.0");
  expect_said(in_space_of("30m"), 0, "GB free, but 4 checkpoints (ckpt.keep_last + 1) need 0.0");
}

TEST(DoctorTest, KeysAndDataThatTrainingRefusesAreAFault) {
  const ProgramResult outcome = alone("", "--data.name=idx --data.path=/nowhere");
  expect_said(outcome, 2, "fault     config     rank 0 on ");
  expect_said(outcome, 2, "/nowhere");
}

TEST(DoctorTest, ErrorsOfGpusAreNamed) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("nvidia-smi"), "#!/bin/sh\necho 0, 550.54.15, 0, Yes, No\n");
  testing::write_file(folder.path("dmesg"),
                      "#!/bin/sh\necho '[ 2.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'\n");
  for (const char* const name : {"nvidia-smi", "dmesg"}) fs::permissions(folder / name, fs::perms::owner_all);
  const ProgramResult outcome = alone("PATH=" + folder.path() + ":$PATH");
  expect_said(outcome, 0, "GPU 0 has rows of memory that a reset would remap");
  expect_said(outcome, 0, "the kernel log has 1 XID error: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
}

TEST(DoctorTest, SegmentsThatNobodyUsesAreNamed) {
  const std::string path = "/dev/shm/lockstep_doctor_test";
  testing::write_file(path, "x");
  const ProgramResult outcome = alone("");
  fs::remove(path);
  expect_said(outcome, 0, path);
}

TEST(DoctorTest, LimitsOfFilesAreNamed) { expect_said(alone("ulimit -n 1024;"), 0, "may open 1024 files"); }

TEST(DoctorTest, OpenMpThatIsLoadedTwiceIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string library = folder.path("libiomp5.so");
  const ProgramResult made = testing::run_shell("echo 'int unused;' | cc -shared -x c - -o " + library);
  if (made.exit_code != 0) GTEST_SKIP() << made.output;
  expect_said(alone("LD_PRELOAD=" + library), 0, "has loaded OpenMP twice");
}

TEST(DoctorTest, AJobThatIsNotRequeuedIsNamed) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path("scontrol"), "#!/bin/sh\necho JobId=7 Requeue=0 TimeLimit=01:00:00\n");
  fs::permissions(folder / "scontrol", fs::perms::owner_all);
  const ProgramResult outcome = alone("PATH=" + folder.path() + ":$PATH SLURM_JOB_ID=7");
  expect_said(outcome, 0, "job 7 is not requeued when a host fails");
  expect_said(outcome, 0, "job 7 has a time limit of 01:00:00");
}

TEST(DoctorTest, TwoHostsAreExaminedTogether) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = on_two_hosts(folder, 2, "", "--run.dir=" + folder.path("run"));
  if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
  expect_said(outcome, 0, "4 ranks on 2 hosts, with the same program, libraries and variables");
  for (const char* const place : {"inside a host", "between hosts"}) {
    expect_said(outcome, 0, std::string("messages ") + place + " take ");
  }
  expect_said(outcome, 0, "the bus bandwidth of all_reduce is ");
  expect_said(outcome, 0, "all ranks write 1 MB to run.dir");
}

// The faults of the second host alone.
TEST(DoctorTest, FaultsOfTheSecondHostAreNamed) {
  struct Illness {
    std::string script;
    int exit_code;
    std::string evidence;
  };
  const std::string on_second = "[ $(hostname) = nodea ] || ";
  const std::string mount = on_second + "mount -t tmpfs ";
  const std::string data = testing::sample_data("mnist10k");
  for (const Illness& illness :
       {Illness{mount + "-o ro tmpfs \"$(dirname $0)/run\"", 2, "fault     files      rank 1 on nodeb: "},
        Illness{mount + "tmpfs \"$(dirname $0)/run\"", 2, "rank 1 on nodeb does not see what rank 0 wrote to "},
        Illness{mount + "tmpfs '" + data + "'", 2, "fault     config     rank 1 on nodeb cannot train: "},
        Illness{on_second + "export OMP_PROC_BIND=true", 0,
                "the variable OMP_PROC_BIND is not set on rank 0, but true on rank 1 on nodeb"},
        Illness{on_second + "ulimit -n 1024", 0, "a process on nodeb may open 1024 files"}}) {
    const testing::TemporaryFolder folder;
    fs::create_directory(folder / "run");
    const ProgramResult outcome = on_two_hosts(
        folder, 1, illness.script, "--run.dir=" + folder.path("run") + " --data.name=idx --data.path=" + data);
    if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
    expect_said(outcome, illness.exit_code, illness.evidence);
  }
}

// Messages go to an interface that leads nowhere, as where a firewall drops them.
TEST(DoctorTest, HostsThatCannotConnectAreAFault) {
  const testing::TemporaryFolder folder;
  const ProgramResult outcome = on_two_hosts(
      folder, 1,
      "set -e; own=1 other=2; [ $(hostname) = nodea ] || { own=2; other=1; }\n"
      "ip link add cut0 type veth peer name cut1; ip link set cut0 up; ip link set cut1 up\n"
      "ip addr add 10.79.0.$own/24 dev cut0; ip neigh add 10.79.0.$other lladdr 02:00:00:00:00:01 dev cut0\n"
      "export OMPI_MCA_btl_tcp_if_include=cut0\n",
      "--json");
  if (outcome.exit_code == kNotPermitted) GTEST_SKIP() << outcome.output;
  expect_said(outcome, 2, "rank 0 on nodea has no answer from rank 1 within 8 s");
  expect_said(outcome, 2, "btl_tcp_if_include");
  EXPECT_EQ(outcome.output.find("rank 1 on nodeb"), std::string::npos) << outcome.output;  // one list of findings
}

}  // namespace doctor_test
}  // namespace lockstep
