// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>

#include "core/system/process.hpp"
#include "core/system/processors.hpp"
#include "mpi/process/affinity.hpp"

namespace lockstep::mpi {

namespace {

/// Numbers the hosts by their lowest rank.
/// @param leader_of_rank  for every rank, the lowest rank on its host
std::vector<int> number_hosts(const std::vector<std::int32_t>& leader_of_rank) {
  std::vector<std::int32_t> leaders = leader_of_rank;
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  std::vector<int> host_of_rank;
  for (const std::int32_t leader : leader_of_rank) {
    host_of_rank.push_back(
        static_cast<int>(std::lower_bound(leaders.begin(), leaders.end(), leader) - leaders.begin()));
  }
  return host_of_rank;
}

std::string count_of(int count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

/// Ranks of one control group share its quota of processor time. Collective over the ranks of a host.
void limit_to_quotas(Topology& topology, const Communicator& host) {
  const std::optional<CpuQuota> mine = cpu_quota();
  const std::string text = mine ? mine->group + " " + std::to_string(static_cast<int>(mine->processors)) : "";
  std::map<std::string, int> quotas;
  bool is_unlimited = false;
  for (const std::string& other : host.all_gather(text)) {
    const std::size_t blank = other.rfind(' ');
    if (blank == std::string::npos) {
      is_unlimited = true;
    } else {
      quotas[other.substr(0, blank)] = std::max(1, std::atoi(other.c_str() + blank));
    }
  }
  topology.cpu_quota = mine ? mine->processors : 0;
  if (mine) topology.cpus = std::clamp(static_cast<int>(mine->processors), 1, topology.cpus);
  int sum = 0;
  for (const auto& [group, processors] : quotas) sum += processors;
  if (!is_unlimited) topology.host_cpus = std::clamp(sum, 1, topology.host_cpus);
}

}  // namespace

Topology Topology::of(const Communicator& world, int hosts) {
  if (hosts > world.size()) {
    throw_agreed(ExitCode::configuration, "comm.hosts: " + std::to_string(hosts) + " hosts cannot be formed from " +
                                              count_of(world.size(), "rank") + "; use 0 for the actual hosts");
  }
  const Communicator host = hosts == 0
                                ? world.split_by_host()
                                : world.split(static_cast<int>(std::int64_t{world.rank()} * hosts / world.size()));
  Topology topology;
  topology.local_rank = host.rank();
  topology.local_size = host.size();

  std::int32_t leader = world.rank();
  host.broadcast(std::span(&leader, 1));
  std::vector<std::int32_t> leader_of_rank(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::int32_t>(&leader, 1), std::span(leader_of_rank));
  topology.host_of_rank = number_hosts(leader_of_rank);
  topology.host_index = topology.host_of_rank[world.rank()];
  topology.host_count = 1 + *std::max_element(topology.host_of_rank.begin(), topology.host_of_rank.end());
  topology.host_name = lockstep::host_name();

  const std::string mine = affinity_mask();
  topology.cpus = count_cpus(mine);
  std::string united = mine;
  for (const std::string& mask : host.all_gather(mine)) united = union_of(united, mask);
  topology.host_cpus = count_cpus(united);
  limit_to_quotas(topology, host);
  return topology;
}

std::string Topology::oversubscription(int threads_per_rank) const {
  const std::string threads = count_of(threads_per_rank, "thread");
  if (threads_per_rank > cpus) {
    return "a rank on " + host_name + " has " + threads + " but may run on " + count_of(cpus, "processor") +
           " only: use fewer threads, or bind each rank to more processors (mpirun --bind-to none, or --map-by "
           "slot:PE=N)";
  }
  if (threads_per_rank * local_size > host_cpus) {
    return count_of(local_size, "rank") + " with " + threads + " each share " + count_of(host_cpus, "processor") +
           " on " + host_name + ": use fewer ranks or threads";
  }
  return "";
}

}  // namespace lockstep::mpi
