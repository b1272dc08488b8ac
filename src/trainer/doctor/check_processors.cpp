// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/setup/resources.hpp"
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

namespace {

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

void check_nodes(const Patient& patient, Findings& found) {
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const DoctorFacts& facts = patient.ranks[rank];
    std::map<int, int> processors_of_node;
    int most = 0;
    for (const ProcessorFacts& processor : facts.allowed) most = std::max(most, ++processors_of_node[processor.node]);
    if (processors_of_node.size() < 2 || facts.threads > most) continue;  // more threads need several nodes
    found.push_back(
        warning(fmt::format("{} may use the processors of {} NUMA nodes, but its {} fit into one: its "
                            "memory can be far from its threads",
                            rank_on_host(patient, rank), processors_of_node.size(),
                            facts.threads == 1 ? "thread would" : std::to_string(facts.threads) + " threads would"),
                "mpirun --map-by numa --bind-to numa; srun --cpu-bind=ldoms"));
    return;  // the others are bound in the same way
  }
}

/// Whether two ranks have a core in common, but no processor.
bool share_a_core(const DoctorFacts& one, const DoctorFacts& other) {
  bool is_shared = false;
  for (const ProcessorFacts& mine : one.allowed) {
    for (const ProcessorFacts& theirs : other.allowed) {
      if (mine.number == theirs.number) return false;
      is_shared = is_shared || mine.core == theirs.core;
    }
  }
  return is_shared;
}

/// The first two of the ranks of a host that share a core.
std::optional<std::pair<std::size_t, std::size_t>> ranks_of_a_core(const Patient& patient,
                                                                   const std::vector<std::size_t>& ranks) {
  for (const std::size_t one : ranks) {
    for (const std::size_t other : ranks) {
      if (one < other && share_a_core(patient.ranks[one], patient.ranks[other])) return std::pair(one, other);
    }
  }
  return std::nullopt;
}

void check_cores(const Patient& patient, Findings& found) {
  for (const auto& [host, ranks] : patient.ranks_of_host) {
    std::set<int> used;
    for (const std::size_t rank : ranks) {
      for (const ProcessorFacts& processor : patient.ranks[rank].allowed) used.insert(processor.core);
    }
    const int free = patient.ranks[ranks.front()].host_cores - static_cast<int>(used.size());
    const auto pair = free > 0 ? ranks_of_a_core(patient, ranks) : std::nullopt;
    if (!pair) continue;
    found.push_back(warning(fmt::format("rank {} and rank {} on {} share the hardware threads of one core, but {} {} "
                                        "no rank",
                                        pair->first, pair->second, host, free, free == 1 ? "core has" : "cores have"),
                            "mpirun --map-by core --bind-to core; srun --hint=nomultithread"));
  }
}

void check_evenness(const Patient& patient, Findings& found) {
  constexpr double kSlow = 0.7;
  const auto check = [&](const char* name, const char* unit, const std::function<double(const DoctorFacts&)>& value) {
    std::vector<double> values;
    for (const DoctorFacts& rank : patient.ranks) values.push_back(value(rank));
    const double median = median_of_ranks(values);
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

}  // namespace

Findings check_processors(const Patient& patient) {
  Findings found;
  check_binding(patient, found);
  check_nodes(patient, found);
  check_cores(patient, found);
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

}  // namespace lockstep::trainer
