// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/findings.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "trainer/doctor/gpu_facts.hpp"
#include "trainer/doctor/quota.hpp"

namespace lockstep::trainer {
namespace findings_test {

using Ranks = std::vector<DoctorFacts>;

/// Two cores of one hardware thread for each rank of a host.
std::vector<ProcessorFacts> processors_of(int local_rank) {
  const int first = 2 * local_rank;
  return {{.number = first, .core = first}, {.number = first + 1, .core = first + 1}};
}

/// Two ranks on each of two hosts, with nothing to complain about.
Ranks healthy() {
  Ranks ranks;
  for (const char* const host : {"a", "a", "b", "b"}) {
    ranks.push_back({.host = host,
                     .versions = {{"Lockstep", "1.0"}, {"MPI", "Open MPI v4.1"}, {"program", "17"}, {"libtorch", "2"}},
                     .variables = {{"OMP_PLACES", "cores"}},
                     .level = "avx2",
                     .vendor = "amd",
                     .launched = 4,
                     .threads = 2,
                     .processors = 2,
                     .allowed = processors_of(static_cast<int>(ranks.size() % 2)),
                     .host_cores = 8,
                     .governor = "performance",
                     .open_files = 65536,
                     .locked_mb = -1,
                     .available_mb = 32000,
                     .huge_pages = "madvise",
                     .shared_mb = 16000,
                     .shared_free_mb = 16000,
                     .interfaces = {"eth0"},
                     .runtimes = {"/x/libgomp.so.1"},
                     .need = {.shared_mb = 10, .bucket_mb = 5, .own_mb = 20, .checkpoint_mb = 30, .checkpoints = 4},
                     .memory_gbs = 10,
                     .products_gfs = 100,
                     .latency_us = ranks.empty() ? 0.0 : 2.0,
                     .message_gbs = 3,
                     .inside_gbs = 4,
                     .between_gbs = ranks.size() % 2 == 0 ? 1.0 : 0.0,
                     .files = {.type = "nfs", .sync_ms = 5, .free_gb = 100}});
  }
  return ranks;
}

Finding worst_of(const Ranks& ranks, const JobFacts& job = {}, const std::string& folder = "runs/a") {
  Finding worst;
  for (const Finding& finding : findings_about(ranks, job, folder)) {
    if (finding.verdict > worst.verdict) worst = finding;
  }
  return worst;
}

TEST(FindingsTest, AHealthyJobHasALinePerSubject) {
  const std::vector<Finding> found = findings_about(healthy(), {}, "runs/a");
  std::vector<std::string> subjects;
  for (const Finding& finding : found) {
    EXPECT_EQ(finding.verdict, Verdict::fine) << finding.evidence;
    EXPECT_EQ(finding.remedy, "");
    if (subjects.empty() || subjects.back() != finding.subject) subjects.push_back(finding.subject);
  }
  EXPECT_EQ(subjects, (std::vector<std::string>{"launch", "config", "processor", "memory", "network", "files", "slurm",
                                                "gpu", "libtorch"}));
  EXPECT_TRUE(text_of(found).ends_with("0 faults, 0 warnings")) << text_of(found);
}

TEST(FindingsTest, FactsOfARankSurviveTheirWay) {
  const DoctorFacts facts = healthy()[1];
  const DoctorFacts got = unpacked(packed(facts));
  EXPECT_EQ(packed(got), packed(facts));
  EXPECT_EQ(got.versions, facts.versions);
  EXPECT_EQ(got.files.type, "nfs");
}

struct Illness {
  const char* name;
  std::function<void(Ranks&)> infect;
  const char* subject;
  Verdict verdict;
  const char* evidence;
  const char* remedy;  ///< a part of it
};

std::vector<Illness> illnesses() {
  return {
      {"another MPI", [](Ranks& ranks) { ranks.resize(1); }, "launch", Verdict::fault,
       "the launcher started 4 ranks, but MPI sees 1: it belongs to another MPI library than this program (Open MPI "
       "v4.1)",
       "tools/train"},
      {"another version", [](Ranks& ranks) { ranks[3].versions["libtorch"] = "3"; }, "launch", Verdict::fault,
       "libtorch is '2' on rank 0, but '3' on rank 3 on b", "same build"},
      {"another program", [](Ranks& ranks) { ranks[2].versions["program"] = "18"; }, "launch", Verdict::fault,
       "rank 2 on b runs another program file than rank 0", "same build"},
      {"a lost variable", [](Ranks& ranks) { ranks[1].variables.clear(); }, "launch", Verdict::warning,
       "the variable OMP_PLACES is cores on rank 0, but not set on rank 1 on a", "mpirun -x OMP_PLACES"},
      {"binding", [](Ranks& ranks) { ranks[1].processors = 1; }, "processor", Verdict::warning,
       "rank 1 on a has 2 threads, but may use 1 of the processors", "PE=2"},
      {"a quota", [](Ranks& ranks) { ranks[1].quota = 1.5; }, "processor", Verdict::warning,
       "rank 1 on a has 2 threads, but its control group allows 1.5 processors", "--cpus"},
      {"another level", [](Ranks& ranks) { ranks[1].level = "avx512"; }, "processor", Verdict::warning, nullptr,
       "LOCKSTEP_CPU"},
      {"the governor", [](Ranks& ranks) { ranks[2].governor = "powersave"; }, "processor", Verdict::warning,
       "the frequency governor of b is powersave", "cpupower"},
      {"slow memory", [](Ranks& ranks) { ranks[2].memory_gbs = 4; }, "processor", Verdict::warning,
       "rank 2 on b has 4 GB/s of memory bandwidth, the median rank 10", "top"},
      {"slow products", [](Ranks& ranks) { ranks[3].products_gfs = 60; }, "processor", Verdict::warning,
       "rank 3 on b has 60 GFLOP/s of float32 products, the median rank 100", "top"},
      {"a refused configuration", [](Ranks& ranks) { ranks[3].need.refusal = "data.path: /d: not found"; }, "config",
       Verdict::fault, "rank 3 on b cannot train: data.path: /d: not found", "on all hosts"},
      {"nodes",
       [](Ranks& ranks) {
         ranks[2].threads = 1;
         ranks[2].allowed[1].node = 1;
       },
       "processor", Verdict::warning,
       "rank 2 on b may use the processors of 2 NUMA nodes, but its thread would fit into one: its memory can be far "
       "from its threads",
       "--bind-to numa"},
      {"one core",
       [](Ranks& ranks) {
         ranks[2].allowed = {{.number = 0, .core = 0}, {.number = 1, .core = 1}};
         ranks[3].allowed = {{.number = 8, .core = 0}, {.number = 9, .core = 1}};
       },
       "processor", Verdict::warning,
       "rank 2 and rank 3 on b share the hardware threads of one core, but 6 cores have no rank", "--bind-to core"},
      {"no shared memory", [](Ranks& ranks) { ranks[2].shared_free_mb = 9; }, "memory", Verdict::fault,
       "/dev/shm of b has 9 MB free of 16000, but the need of 2 ranks is 10 MB for messages", "--shm-size"},
      {"little shared memory", [](Ranks& ranks) { ranks[2].shared_free_mb = 200; }, "memory", Verdict::warning,
       "/dev/shm of b has 200 MB free of 16000, but the need of 2 ranks can be 256 MB", "--shm-size"},
      {"little shared memory for parameters",
       [](Ranks& ranks) {
         ranks[2].shares_by_name = true;
         ranks[2].need.shared_mb = 15990;
       },
       "memory", Verdict::fault,
       "/dev/shm of b has 16000 MB free of 16000, but the need of 2 ranks is 16010 MB for parameters, gradients and "
       "messages",
       "--shm-size"},
      {"no memory", [](Ranks& ranks) { ranks[0].need.own_mb = 40000; }, "memory", Verdict::fault,
       "a has 32000 MB of memory, but the need of 2 ranks is 40040 MB without activations", "--mem"},
      {"little memory", [](Ranks& ranks) { ranks[0].available_mb = 1500; }, "memory", Verdict::warning,
       "a has 1500 MB of memory, but the need of 2 ranks is 60 MB without activations", "--mem"},
      {"a control group",
       [](Ranks& ranks) {
         ranks[2].available_mb = 50;
         ranks[2].limit_mb = 600;
       },
       "memory", Verdict::fault,
       "b has 50 MB of memory of 600 that its control group allows, but the need of 2 ranks is 60 MB without "
       "activations",
       "docker --memory"},
      {"small pages", [](Ranks& ranks) { ranks[2].huge_pages = "never"; }, "memory", Verdict::warning,
       "the system of b never uses transparent huge pages, which makes loops over all parameters slower by up to a "
       "fifth",
       "echo madvise"},
      {"few files", [](Ranks& ranks) { ranks[0].open_files = 1024; }, "memory", Verdict::warning,
       "a process on a may open 1024 files", "ulimit -n"},
      {"locked memory",
       [](Ranks& ranks) {
         ranks[2].has_fabric = true;
         ranks[2].locked_mb = 8;
       },
       "memory", Verdict::warning, "b has a fast network, but a process may lock 8 MB of memory only", "ulimit -l"},
      {"old segments", [](Ranks& ranks) { ranks[2].stale = {"/dev/shm/vader_segment.b.1"}; }, "memory",
       Verdict::warning, "no process uses 1 file in /dev/shm of b, which earlier jobs left there",
       "rm /dev/shm/vader_segment.b.1"},
      {"double copies", [](Ranks& ranks) { ranks[0].copies_twice = true; }, "memory", Verdict::warning,
       "the system of a denies process_vm_readv, so MPI copies each message twice", "SYS_PTRACE"},
      {"bridges",
       [](Ranks& ranks) {
         ranks[0].interfaces = {"docker0", "eth0", "ib0", "virbr0"};
       },
       "network", Verdict::warning, "MPI may try docker0, virbr0, which lead to no other host",
       "mpirun --mca btl_tcp_if_include eth0,ib0"},
      {"a folder that is not shared", [](Ranks& ranks) { ranks[2].files.sees_first_rank = false; }, "files",
       Verdict::fault, "rank 2 on b does not see what rank 0 wrote to runs/a", "all hosts share"},
      {"a folder that is not writable", [](Ranks& ranks) { ranks[3].files.fault = "runs/a: open: Permission denied"; },
       "files", Verdict::fault, "rank 3 on b: runs/a: open: Permission denied", "writable"},
      {"a wrong clock", [](Ranks& ranks) { ranks[2].files.clock_ahead_s = -7.5; }, "files", Verdict::warning,
       "the clock of b and that of run.dir differ by 7.5 s", "chronyc"},
      {"a full disk", [](Ranks& ranks) { ranks[0].files.free_gb = 0.25; }, "files", Verdict::warning,
       "run.dir has 0.25 GB free", "ckpt prune"},
      {"room for a few checkpoints",
       [](Ranks& ranks) {
         for (DoctorFacts& rank : ranks) rank.need.checkpoint_mb = 26000;
       },
       "files", Verdict::warning, "run.dir has 100.00 GB free, but 4 checkpoints (ckpt.keep_last + 1) need 104.00 GB",
       "ckpt.keep_last"},
      {"room for no checkpoint", [](Ranks& ranks) { ranks[0].need.checkpoint_mb = 101000; }, "files", Verdict::fault,
       "run.dir has 100.00 GB free, but a checkpoint needs 101.00 GB", "ckpt prune"},
      {"a quota of files", [](Ranks& ranks) { ranks[0].files.quota_gb = 0.02; }, "files", Verdict::fault,
       "the quota of this user leaves 0.02 GB in run.dir, but a checkpoint needs 0.03 GB", "larger quota"},
      {"broken GPU memory",
       [](Ranks& ranks) { ranks[2].gpus = gpu_facts_in("0, 550.54, 0, No, No\n1, 550.54, 3, Yes, [N/A]\n"); }, "gpu",
       Verdict::warning, "b: GPU 1 has 3 uncorrected ECC errors since the driver was loaded", "--exclude=b"},
      {"drivers",
       [](Ranks& ranks) {
         ranks[0].gpus.driver = "550.54";
         ranks[2].gpus.driver = "535.1";
       },
       "gpu", Verdict::warning, "the driver of the GPUs is 550.54 on a, but 535.1 on b", "same driver"},
      {"another NCCL",
       [](Ranks& ranks) {
         for (DoctorFacts& rank : ranks) rank.versions["NCCL"] = rank.host == "a" ? "2.28.9" : "2.21.5";
       },
       "launch", Verdict::fault, "NCCL is '2.28.9' on rank 0, but '2.21.5' on rank 2 on b", "same build"},
      {"one GPU", [](Ranks& ranks) { ranks[0].gpu = "H200"; }, "gpu", Verdict::warning,
       "rank 0 has H200, but rank 1 on a none", "run.device=cpu"},
      {"OpenMP twice", [](Ranks& ranks) { ranks[1].runtimes.push_back("/y/libiomp5.so"); }, "libtorch",
       Verdict::warning, "rank 1 on a has loaded OpenMP twice: /x/libgomp.so.1, /y/libiomp5.so", "LD_PRELOAD"},
  };
}

TEST(FindingsTest, EachIllnessIsNamedWithItsRemedy) {
  for (const Illness& illness : illnesses()) {
    Ranks ranks = healthy();
    illness.infect(ranks);
    const Finding worst = worst_of(ranks);
    EXPECT_EQ(worst.subject, illness.subject) << illness.name;
    EXPECT_EQ(worst.verdict, illness.verdict) << illness.name;
    if (illness.evidence != nullptr) {
      EXPECT_EQ(worst.evidence, illness.evidence);
    }
    EXPECT_NE(worst.remedy.find(illness.remedy), std::string::npos) << worst.remedy;
  }
}

TEST(FindingsTest, BridgesOfOneHostAreOfNoImportance) {
  Ranks ranks = healthy();
  ranks.resize(2);
  for (DoctorFacts& rank : ranks) {
    rank.launched = 2;
    rank.interfaces = {"docker0", "eth0"};
  }
  EXPECT_EQ(worst_of(ranks).verdict, Verdict::fine);
}

TEST(FindingsTest, ChosenInterfacesAreLeftAlone) {
  Ranks ranks = healthy();
  for (DoctorFacts& rank : ranks) {
    rank.interfaces = {"docker0", "eth0"};
    rank.variables["OMPI_MCA_btl_tcp_if_include"] = "eth0";
  }
  EXPECT_EQ(worst_of(ranks).verdict, Verdict::fine);
}

TEST(FindingsTest, RanksThatMayUseAllProcessorsShareNoCore) {
  Ranks ranks = healthy();
  for (DoctorFacts& rank : ranks) rank.allowed = {{.number = 0, .core = 0}, {.number = 8, .core = 0}};
  EXPECT_EQ(worst_of(ranks).verdict, Verdict::fine);
}

TEST(FindingsTest, ThreadsThatNeedAllNodesMayUseThem) {
  Ranks ranks = healthy();
  ranks[2].allowed[1].node = 1;  // two threads, one processor on each node
  EXPECT_EQ(worst_of(ranks).verdict, Verdict::fine);
}

TEST(FindingsTest, RunsWithoutCheckpointsNeedNoSpace) {
  Ranks ranks = healthy();
  ranks[0].need.checkpoint_mb = 101000;
  ranks[0].need.checkpoints = 0;
  EXPECT_EQ(worst_of(ranks).verdict, Verdict::fine);
}

std::string evidence_about(const std::string& subject, const Ranks& ranks) {
  std::string text;
  for (const Finding& finding : findings_about(ranks, {}, "runs/a")) {
    if (finding.subject == subject) text += finding.evidence + "\n";
  }
  return text;
}

TEST(FindingsTest, MessagesAndAllReduceAreMeasuredInsideHostsAndBetweenThem) {
  Ranks ranks = healthy();
  ranks[3].inside_gbs = 3.5;
  EXPECT_EQ(evidence_about("network", ranks),
            "messages inside a host take 2 us and have 3 GB/s (medians); the bus bandwidth of all_reduce is 3.5 GB/s\n"
            "messages between hosts take 2 us and have 3 GB/s (medians); the bus bandwidth of all_reduce is 1 GB/s\n");
}

TEST(FindingsTest, VersionsOfDriverAndNcclAreNamed) {
  Ranks ranks = healthy();
  for (DoctorFacts& rank : ranks) {
    rank.gpu = "H200";
    rank.gpus = gpu_facts_in("0, 550.54, 0, No, No\n");
    rank.versions["NCCL"] = "2.28.9";
  }
  EXPECT_EQ(evidence_about("gpu", ranks), "H200 on each rank, driver 550.54, NCCL 2.28.9\n");
}

TEST(FindingsTest, AnswersOfNvidiaSmiThatAreNoTableAreQuoted) {
  const GpuFacts facts = gpu_facts_in("NVIDIA-SMI has failed because it could not communicate with the driver.\n");
  EXPECT_EQ(facts.driver, "");
  EXPECT_EQ(facts.errors, (std::vector<std::string>{
                              "nvidia-smi says: NVIDIA-SMI has failed because it could not communicate with the "
                              "driver."}));
}

TEST(FindingsTest, XidErrorsOfThePartsAreCounted) {
  const std::string of_program = "[ 1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=trainer, MMU Fault\n";
  EXPECT_EQ(xid_errors_in(of_program), "");
  const std::string lost = "[ 2.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n";
  EXPECT_EQ(xid_errors_in(of_program + lost),
            "the kernel log has 1 XID error: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
  EXPECT_NE(xid_errors_in(lost + lost).find("2 XID errors"), std::string::npos);
}

TEST(FindingsTest, TheDeviceOfAFolderIsFound) {
  const std::string lines =
      "22 28 0:20 / /proc rw,relatime shared:5 - proc proc rw\n"
      "36 28 98:0 / /home rw,noatime - ext4 /dev/sda1 rw,usrquota\n";
  EXPECT_EQ(device_in(lines, "98:0"), "/dev/sda1");
  EXPECT_EQ(device_in(lines, "98:1"), "");
}

TEST(FindingsTest, TheJobIsReadFromSlurm) {
  const JobFacts job = job_facts_in("JobId=7 JobName=a b Requeue=0 Restarts=0 TimeLimit=01:00:00 Command=x=y");
  EXPECT_EQ(job.at("TimeLimit"), "01:00:00");
  EXPECT_EQ(job.at("Command"), "x=y");
  const Finding worst = worst_of(healthy(), job);
  EXPECT_EQ(worst.evidence, "job 7 is not requeued when a host fails");
  EXPECT_EQ(worst.remedy, "sbatch --requeue");
}

}  // namespace findings_test
}  // namespace lockstep::trainer
