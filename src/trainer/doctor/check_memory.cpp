// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "core/text/text.hpp"
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

namespace {

constexpr double kMinSharedMb = 128;    // per rank: MPI and NCCL
constexpr double kSegmentMb = 5;        // per rank: segment of Open MPI for messages inside a host
constexpr double kActivationMb = 1000;  // per rank: guess of what is not computed

/// The needs of the ranks of a host, in MB.
struct HostNeed {
  double memory = 0;
  double shared = 0;  ///< memory that the ranks share
};

HostNeed need_of_host(const Patient& patient, const std::vector<std::size_t>& ranks) {
  HostNeed need{.shared = patient.ranks[ranks.front()].need.shared_mb};
  for (const std::size_t rank : ranks) {
    need.shared += patient.ranks[rank].need.bucket_mb;
    need.memory += patient.ranks[rank].need.own_mb;
  }
  need.memory += need.shared;
  return need;
}

std::string ranks_text(std::size_t ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

void check_shared(const std::string& host, const DoctorFacts& facts, std::size_t ranks, double shared_mb,
                  Findings& found) {
  if (ranks == 1) return;
  const double named = facts.shares_by_name ? shared_mb : 0;
  const double needed = kSegmentMb * static_cast<double>(ranks) + named;
  const double wanted = kMinSharedMb * static_cast<double>(ranks) + named;
  const std::string has =
      fmt::format("/dev/shm of {} has {:.0f} MB free of {:.0f}", host, facts.shared_free_mb, facts.shared_mb);
  const std::string remedy = "docker run --shm-size=8g; mount -o remount,size=50% /dev/shm; or comm.backend=mpi";
  if (facts.shared_free_mb < needed) {
    found.push_back(fault(fmt::format("{}, but the need of {} is {:.0f} MB for {}", has, ranks_text(ranks), needed,
                                      named > 0 ? "parameters, gradients and messages" : "messages"),
                          remedy));
  } else if (facts.shared_free_mb < wanted) {
    found.push_back(
        warning(fmt::format("{}, but the need of {} can be {:.0f} MB", has, ranks_text(ranks), wanted), remedy));
  }
}

void check_available(const std::string& host, const DoctorFacts& facts, std::size_t ranks, double memory_mb,
                     Findings& found) {
  const double wanted = memory_mb + kActivationMb * static_cast<double>(ranks);
  if (facts.available_mb >= wanted) return;
  const std::string evidence = fmt::format(
      "{} has {:.0f} MB of memory{}, but the need of {} is {:.0f} MB without activations", host, facts.available_mb,
      facts.limit_mb > 0 ? fmt::format(" of {:.0f} that its control group allows", facts.limit_mb) : "",
      ranks_text(ranks), memory_mb);
  const std::string remedy =
      "request more memory (Slurm --mem, docker --memory), start fewer ranks per host, or shard the state "
      "(strategy.name=sharded)";
  found.push_back(facts.available_mb < memory_mb ? fault(evidence, remedy) : warning(evidence, remedy));
}

}  // namespace

Findings check_memory(const Patient& patient) {
  constexpr std::int64_t kFiles = 4096;
  Findings found;
  for (const auto& [host, ranks] : patient.ranks_of_host) {
    const DoctorFacts& facts = patient.ranks[ranks.front()];
    const HostNeed need = need_of_host(patient, ranks);
    check_shared(host, facts, ranks.size(), need.shared, found);
    check_available(host, facts, ranks.size(), need.memory, found);
    if (facts.huge_pages == "never") {
      found.push_back(warning("the system of " + host +
                                  " never uses transparent huge pages, which makes loops over all parameters slower by "
                                  "up to a fifth",
                              "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"));
    }
    if (facts.open_files >= 0 && facts.open_files < kFiles) {
      found.push_back(
          warning(fmt::format("a process on {} may open {} files", host, facts.open_files), "ulimit -n 65536"));
    }
    if (facts.has_fabric && facts.locked_mb >= 0) {
      found.push_back(warning(
          fmt::format("{} has a fast network, but a process may lock {:.0f} MB of memory only", host, facts.locked_mb),
          "ulimit -l unlimited (limits.conf, or LimitMEMLOCK of slurmd)"));
    }
    if (!facts.stale.empty()) {
      constexpr std::size_t kShown = 5;
      const std::size_t files = facts.stale.size();
      const std::vector<std::string> first(facts.stale.begin(), facts.stale.begin() + std::min(files, kShown));
      found.push_back(warning(fmt::format("no process uses {} in /dev/shm of {}, which earlier jobs left there",
                                          files == 1 ? "1 file" : std::to_string(files) + " files", host),
                              "rm " + joined(first, " ") + (files > kShown ? " and so on" : "")));
    }
    if (facts.copies_twice) {
      found.push_back(warning("the system of " + host + " denies process_vm_readv, so MPI copies each message twice",
                              "docker run --cap-add=SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0"));
    }
  }
  if (found.empty()) {
    const DoctorFacts& first = patient.ranks.front();
    found.push_back(fine(fmt::format("{:.1f} GB available, {:.1f} GB in /dev/shm", first.available_mb / 1e3,
                                     first.shared_free_mb / 1e3)));
  }
  return found;
}

}  // namespace lockstep::trainer
