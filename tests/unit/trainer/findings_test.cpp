// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/findings.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep::trainer {
namespace findings_test {

using Ranks = std::vector<DoctorFacts>;

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
                     .governor = "performance",
                     .open_files = 65536,
                     .locked_mb = -1,
                     .available_mb = 32000,
                     .shared_mb = 16000,
                     .shared_free_mb = 16000,
                     .interfaces = {"eth0"},
                     .runtimes = {"/x/libgomp.so.1"},
                     .memory_gbs = 10,
                     .products_gfs = 100,
                     .latency_us = ranks.empty() ? 0.0 : 2.0,
                     .message_gbs = 3,
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
  EXPECT_EQ(subjects, (std::vector<std::string>{"launch", "processor", "memory", "network", "files", "slurm", "gpu",
                                                "libtorch"}));
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
      {"little shared memory", [](Ranks& ranks) { ranks[2].shared_free_mb = 200; }, "memory", Verdict::fault,
       "/dev/shm of b has 200 MB free of 16000, for 2 ranks that share parameters and gradients there", "--shm-size"},
      {"little memory", [](Ranks& ranks) { ranks[0].available_mb = 1500; }, "memory", Verdict::warning,
       "a has 1500 MB of memory for 2 ranks", "--mem"},
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
