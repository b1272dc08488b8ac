// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/findings.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "core/text/text.hpp"
#include "engine/setup/resources.hpp"

namespace lockstep::trainer {

namespace {

/// The facts that the checks read.
struct Patient {
  const std::vector<DoctorFacts>& ranks;
  const JobFacts& job;
  std::string folder;
  std::map<std::string, std::vector<std::size_t>> ranks_of_host = {};

  bool has_several_hosts() const { return ranks_of_host.size() > 1; }
};

using Findings = std::vector<Finding>;

Finding fine(std::string evidence) {
  return {.subject = "", .verdict = Verdict::fine, .evidence = std::move(evidence)};
}
Finding warning(std::string evidence, std::string remedy) {
  return {.subject = "", .verdict = Verdict::warning, .evidence = std::move(evidence), .remedy = std::move(remedy)};
}
Finding fault(std::string evidence, std::string remedy) {
  return {.subject = "", .verdict = Verdict::fault, .evidence = std::move(evidence), .remedy = std::move(remedy)};
}

std::string rank_on_host(const Patient& patient, std::size_t rank) {
  return "rank " + std::to_string(rank) + " on " + patient.ranks[rank].host;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The first rank with another text than rank 0.
std::optional<std::size_t> first_other(const Patient& patient,
                                       const std::function<std::string(const DoctorFacts&)>& text) {
  for (std::size_t rank = 1; rank < patient.ranks.size(); ++rank) {
    if (text(patient.ranks[rank]) != text(patient.ranks.front())) return rank;
  }
  return std::nullopt;
}

void check_versions(const Patient& patient, Findings& found) {
  for (const auto& [name, value] : patient.ranks.front().versions) {
    const auto version = [&name = name](const DoctorFacts& rank) {
      const auto entry = rank.versions.find(name);
      return entry == rank.versions.end() ? std::string("none") : entry->second;
    };
    const auto other = first_other(patient, version);
    if (!other) continue;
    const bool is_program = name == "program";
    found.push_back(fault(is_program ? rank_on_host(patient, *other) + " runs another program file than rank 0"
                                     : name + " is '" + value + "' on rank 0, but '" + version(patient.ranks[*other]) +
                                           "' on " + rank_on_host(patient, *other),
                          "install the same build on all hosts, and start it by the same path"));
  }
}

void check_variables(const Patient& patient, Findings& found) {
  std::set<std::string> names;
  for (const DoctorFacts& rank : patient.ranks) {
    for (const auto& [name, value] : rank.variables) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto value = [&name](const DoctorFacts& rank) {
      const auto entry = rank.variables.find(name);
      return entry == rank.variables.end() ? std::string("not set") : entry->second;
    };
    if (const auto other = first_other(patient, value)) {
      found.push_back(warning("the variable " + name + " is " + value(patient.ranks.front()) + " on rank 0, but " +
                                  value(patient.ranks[*other]) + " on " + rank_on_host(patient, *other),
                              "mpirun -x " + name + " gives it to all ranks"));
    }
  }
}

Findings check_launch(const Patient& patient) {
  Findings found;
  const int launched = patient.ranks.front().launched;
  if (launched > static_cast<int>(patient.ranks.size())) {
    found.push_back(
        fault("the launcher started " + std::to_string(launched) + " ranks, but MPI sees " +
                  std::to_string(patient.ranks.size()) + ": it belongs to another MPI library than this program (" +
                  patient.ranks.front().versions.at("MPI") + ")",
              "start with the mpirun of that library, or with tools/train; a container needs the same MPI as "
              "the host"));
  }
  check_versions(patient, found);
  check_variables(patient, found);
  if (found.empty()) {
    found.push_back(
        fine(fmt::format("{} {} on {} {}, with the same program, libraries and variables", patient.ranks.size(),
                         patient.ranks.size() == 1 ? "rank" : "ranks", patient.ranks_of_host.size(),
                         patient.ranks_of_host.size() == 1 ? "host" : "hosts")));
  }
  return found;
}

void check_binding(const Patient& patient, Findings& found) {
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const DoctorFacts& facts = patient.ranks[rank];
    if (facts.quota > 0 && facts.quota < facts.threads) {
      found.push_back(warning(fmt::format("{} has {} threads, but its control group allows {:.3g} processors",
                                          rank_on_host(patient, rank), facts.threads, facts.quota),
                              "request more processors (docker --cpus, Slurm --cpus-per-task), or set run.threads"));
    } else if (facts.processors < facts.threads) {
      found.push_back(warning(fmt::format("{} has {} threads, but may use {} of the processors",
                                          rank_on_host(patient, rank), facts.threads, facts.processors),
                              fmt::format("mpirun --map-by slot:PE={} or --bind-to none; srun --cpus-per-task={}",
                                          facts.threads, facts.threads)));
    } else {
      continue;
    }
    return;  // the others are bound in the same way
  }
}

void check_evenness(const Patient& patient, Findings& found) {
  constexpr double kSlow = 0.7;
  const auto check = [&](const char* name, const char* unit, const std::function<double(const DoctorFacts&)>& value) {
    std::vector<double> values;
    for (const DoctorFacts& rank : patient.ranks) values.push_back(value(rank));
    const double median = median_of(values);
    const auto slowest = static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
    if (values[slowest] < kSlow * median) {
      found.push_back(warning(fmt::format("{} has {:.3g} {} of {}, the median rank {:.3g}",
                                          rank_on_host(patient, slowest), values[slowest], unit, name, median),
                              "every step waits for it: look for other programs on that host (top), or leave it out"));
    }
    return median;
  };
  const double memory = check("memory bandwidth", "GB/s", [](const DoctorFacts& rank) { return rank.memory_gbs; });
  const double products =
      check("float32 products", "GFLOP/s", [](const DoctorFacts& rank) { return rank.products_gfs; });
  found.push_back(fine(fmt::format("level {} ({}), {:.3g} GB/s of memory and {:.3g} GFLOP/s per rank, all at once",
                                   patient.ranks.front().level, patient.ranks.front().vendor, memory, products)));
}

Findings check_processors(const Patient& patient) {
  Findings found;
  check_binding(patient, found);
  std::vector<std::string> levels;
  std::vector<std::string> vendors;
  for (const DoctorFacts& rank : patient.ranks) {
    levels.push_back(rank.level);
    vendors.push_back(rank.vendor);
  }
  const std::string difference = engine::difference_of_processors(levels, vendors);
  if (!difference.empty()) {
    found.push_back(warning(difference + ", so that sums are rounded in different ways",
                            "LOCKSTEP_CPU lowers all ranks to one level; train.lanes refuses such ranks"));
  }
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    if (patient.ranks[rank].governor != "powersave") continue;
    found.push_back(warning("the frequency governor of " + patient.ranks[rank].host + " is powersave",
                            "cpupower frequency-set -g performance"));
    break;
  }
  check_evenness(patient, found);
  return found;
}

Findings check_memory(const Patient& patient) {
  constexpr double kSharedMb = 128;      // per rank: buckets and parameters of small models
  constexpr double kAvailableMb = 1000;  // per rank
  constexpr std::int64_t kFiles = 4096;
  Findings found;
  for (const auto& [host, ranks] : patient.ranks_of_host) {
    const DoctorFacts& facts = patient.ranks[ranks.front()];
    const auto count = static_cast<double>(ranks.size());
    if (facts.shared_free_mb < kSharedMb * count) {
      found.push_back(
          fault(fmt::format("/dev/shm of {} has {:.0f} MB free of {:.0f}, for {} ranks that share parameters "
                            "and gradients there",
                            host, facts.shared_free_mb, facts.shared_mb, ranks.size()),
                "docker run --shm-size=8g; mount -o remount,size=50% /dev/shm; or comm.backend=mpi"));
    }
    if (facts.available_mb < kAvailableMb * count) {
      found.push_back(
          warning(fmt::format("{} has {:.0f} MB of memory for {} ranks", host, facts.available_mb, ranks.size()),
                  "request more memory (Slurm --mem), or start fewer ranks"));
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

bool is_virtual(const std::string& interface) {
  static constexpr const char* kPrefixes[] = {"docker", "virbr", "br-", "veth", "cni", "podman", "lxc"};
  return std::ranges::any_of(kPrefixes, [&](const char* prefix) { return interface.starts_with(prefix); });
}

Findings check_network(const Patient& patient) {
  Findings found;
  if (patient.ranks.size() == 1) return {fine("one rank needs none")};
  std::vector<std::string> real;
  std::vector<std::string> imagined;
  for (const std::string& name : patient.ranks.front().interfaces) (is_virtual(name) ? imagined : real).push_back(name);
  if (patient.has_several_hosts() && !imagined.empty()) {
    found.push_back(warning("MPI may try " + joined(imagined) + ", which lead to no other host",
                            "mpirun --mca btl_tcp_if_include " + joined(real, ",")));
  }
  for (const bool is_near : {true, false}) {
    std::vector<double> latencies;
    std::vector<double> speeds;
    for (const DoctorFacts& rank : patient.ranks) {
      if (rank.latency_us == 0 || (rank.host == patient.ranks.front().host) != is_near) continue;
      latencies.push_back(rank.latency_us);
      speeds.push_back(rank.message_gbs);
    }
    if (latencies.empty()) continue;
    found.push_back(
        fine(fmt::format("messages {} take {:.3g} us and have {:.3g} GB/s (medians)",
                         is_near ? "inside a host" : "between hosts", median_of(latencies), median_of(speeds))));
  }
  return found;
}

Findings check_files(const Patient& patient) {
  if (patient.folder.empty()) return {fine("not tried, because run.dir is not set")};
  constexpr double kFreeGb = 1;
  constexpr double kClock = 2;  // seconds
  Findings found;
  double slowest = 0;
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const FileFacts& files = patient.ranks[rank].files;
    slowest = std::max(slowest, files.sync_ms);
    if (!files.fault.empty()) {
      found.push_back(fault(rank_on_host(patient, rank) + ": " + files.fault,
                            "make " + patient.folder + " writable, or choose another run.dir"));
    } else if (!files.sees_first_rank) {
      found.push_back(fault(rank_on_host(patient, rank) + " does not see what rank 0 wrote to " + patient.folder,
                            "set run.dir to a folder of a file system that all hosts share"));
    } else if (std::abs(files.clock_ahead_s) > kClock) {
      found.push_back(warning(fmt::format("the clock of {} and that of run.dir differ by {:.1f} s",
                                          patient.ranks[rank].host, std::abs(files.clock_ahead_s)),
                              "synchronize the clocks (chronyc makestep): the lease of a run counts seconds"));
    } else {
      continue;
    }
    return found;
  }
  const FileFacts& first = patient.ranks.front().files;
  if (first.free_gb < kFreeGb) {
    found.push_back(warning(fmt::format("run.dir has {:.2f} GB free", first.free_gb),
                            "delete old checkpoints (ckpt prune), or set ckpt.keep_last"));
  }
  found.push_back(fine(fmt::format("all ranks write 1 MB to run.dir{} in at most {:.0f} ms; {:.0f} GB free",
                                   first.type.empty() ? "" : " (" + first.type + ")", slowest, first.free_gb)));
  return found;
}

Findings check_slurm(const Patient& patient) {
  if (patient.job.empty()) return {fine("no Slurm job")};
  const auto value = [&](const char* name) {
    const auto found = patient.job.find(name);
    return found == patient.job.end() ? std::string() : found->second;
  };
  Findings found;
  if (value("Requeue") == "0") {
    found.push_back(warning("job " + value("JobId") + " is not requeued when a host fails", "sbatch --requeue"));
  }
  if (value("TimeLimit") == "UNLIMITED" || value("TimeLimit").empty()) {
    found.push_back(fine("job " + value("JobId") + " has no time limit"));
  } else {
    found.push_back(fine("job " + value("JobId") + " has a time limit of " + value("TimeLimit") +
                         "; the run saves before it and ends"));
  }
  return found;
}

Findings check_gpus(const Patient& patient) {
  const std::string& first = patient.ranks.front().gpu;
  if (const auto other = first_other(patient, [](const DoctorFacts& rank) { return rank.gpu; })) {
    const std::string& name = patient.ranks[*other].gpu;
    return {warning("rank 0 has " + (first.empty() ? "no GPU" : first) + ", but " + rank_on_host(patient, *other) +
                        " " + (name.empty() ? "none" : name),
                    "request the same GPUs on all hosts, or set run.device=cpu")};
  }
  return {fine(first.empty() ? "none is used" : first + " on each rank")};
}

Findings check_libtorch(const Patient& patient) {
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const DoctorFacts& facts = patient.ranks[rank];
    if (facts.runtimes.size() < 2) continue;
    return {warning(rank_on_host(patient, rank) + " has loaded OpenMP twice: " + joined(facts.runtimes),
                    "remove one from LD_PRELOAD and LD_LIBRARY_PATH: two pools of threads share the processors")};
  }
  const auto found = patient.ranks.front().versions.find("libtorch");
  return {fine("version " + (found == patient.ranks.front().versions.end() ? std::string("unknown") : found->second))};
}

struct CheckRow {
  const char* subject;
  Findings (*run)(const Patient&);
};

constexpr CheckRow kChecks[] = {{"launch", check_launch},   {"processor", check_processors}, {"memory", check_memory},
                                {"network", check_network}, {"files", check_files},          {"slurm", check_slurm},
                                {"gpu", check_gpus},        {"libtorch", check_libtorch}};

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fine:
      return "ok";
    case Verdict::warning:
      return "warning";
    default:
      return "fault";
  }
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<9} {:<10} {}\n", name_of(finding.verdict), finding.subject, finding.evidence);
    if (!finding.remedy.empty()) text += fmt::format("{:<20} do: {}\n", "", finding.remedy);
  }
  const auto count = [&](Verdict verdict) { return std::ranges::count(findings, verdict, &Finding::verdict); };
  return text + fmt::format("{} faults, {} warnings", count(Verdict::fault), count(Verdict::warning));
}

std::string json_of(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    all.push_back({{"subject", finding.subject},
                   {"verdict", name_of(finding.verdict)},
                   {"evidence", finding.evidence},
                   {"remedy", finding.remedy}});
  }
  return all.dump(2);
}

JobFacts job_facts_in(const std::string& line) {
  JobFacts facts;
  for (const std::string& word : words_in(line, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) facts.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return facts;
}

std::vector<Finding> findings_about(const std::vector<DoctorFacts>& ranks, const JobFacts& job,
                                    const std::string& folder) {
  Patient patient{.ranks = ranks, .job = job, .folder = folder};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) patient.ranks_of_host[ranks[rank].host].push_back(rank);
  std::vector<Finding> all;
  for (const CheckRow& check : kChecks) {
    for (Finding& finding : check.run(patient)) {
      finding.subject = check.subject;
      all.push_back(std::move(finding));
    }
  }
  return all;
}

}  // namespace lockstep::trainer
