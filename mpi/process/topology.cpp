// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/topology.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sched.h>
#include <set>
#include <span>
#include <system_error>

#include "core/system/process.hpp"
#include "core/system/resources.hpp"
#include "core/text/parse_value.hpp"

namespace lockstep::mpi {

namespace {

constexpr int kMaxCpu = 1 << 16;

/// The number of a processor; -1 = the text is none.
int cpu_in(const std::string& text) {
  const std::optional<std::int64_t> number = parse_integer(text);
  return number && *number >= 0 && *number < kMaxCpu ? static_cast<int>(*number) : -1;
}

std::string mask_of(const Cpus& cpus) {
  std::string mask(sizeof(cpu_set_t), '\0');
  for (const int cpu : cpus) {
    const auto byte = static_cast<std::size_t>(cpu / CHAR_BIT);
    if (byte >= mask.size()) mask.resize((byte / sizeof(cpu_set_t) + 1) * sizeof(cpu_set_t), '\0');
    mask[byte] = static_cast<char>(mask[byte] | 1 << cpu % CHAR_BIT);
  }
  return mask;
}

/// Numbers the hosts by their lowest rank.
/// @param leader_of_rank  for every rank, the lowest rank on its host
std::vector<int> number_hosts(const std::vector<std::int32_t>& leader_of_rank) {
  std::map<std::int32_t, int> numbers;
  std::vector<int> host_of_rank;
  for (const std::int32_t leader : leader_of_rank) {
    host_of_rank.push_back(numbers.try_emplace(leader, static_cast<int>(numbers.size())).first->second);
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

std::string affinity_mask() {
  constexpr std::size_t kMaxBytes = 1 << 16;
  for (std::size_t bytes = sizeof(cpu_set_t); bytes <= kMaxBytes; bytes *= 2) {
    std::string mask(bytes, '\0');
    if (sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) == 0) return mask;
    if (errno != EINVAL) break;  // EINVAL: the kernel knows more processors than the mask has bits
  }
  return std::string(1, '\1');
}

std::string union_of(std::string mask, const std::string& other) {
  mask.resize(std::max(mask.size(), other.size()), '\0');
  for (std::size_t i = 0; i < other.size(); ++i) mask[i] = static_cast<char>(mask[i] | other[i]);
  return mask;
}

int count_cpus(const std::string& mask) {
  int cpus = 0;
  for (const char bits : mask) cpus += std::popcount(static_cast<unsigned char>(bits));
  return std::max(cpus, 1);
}

Cpus cpus_in(const std::string& mask) {
  Cpus cpus;
  for (std::size_t byte = 0; byte < mask.size(); ++byte) {
    for (int bit = 0; bit < CHAR_BIT; ++bit) {
      if ((static_cast<unsigned char>(mask[byte]) >> bit & 1) != 0) {
        cpus.push_back(static_cast<int>(byte) * CHAR_BIT + bit);
      }
    }
  }
  return cpus;
}

Cpus parse_cpu_list(const std::string& text) {
  std::set<int> cpus;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string range = text.substr(begin, end - begin);
    const std::size_t dash = range.find('-');
    const int first = cpu_in(range.substr(0, dash));
    const int last = dash == std::string::npos ? first : cpu_in(range.substr(dash + 1));
    if (first < 0 || last < first) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
    begin = end + 1;
  }
  return {cpus.begin(), cpus.end()};
}

std::map<int, int> cores_of(const Cpus& cpus, const std::string& root) {
  std::map<int, int> core_of;
  for (const int cpu : cpus) {
    std::ifstream file(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string list;
    std::getline(file, list);
    const Cpus siblings = parse_cpu_list(list);
    core_of[cpu] = siblings.empty() ? cpu : siblings.front();
  }
  return core_of;
}

int count_cores(const Cpus& cpus, const std::map<int, int>& core_of) {
  std::set<int> cores;
  for (const int cpu : cpus) cores.insert(core_of.at(cpu));
  return static_cast<int>(cores.size());
}

bool bind_process(const Cpus& cpus) {
  const std::string mask = mask_of(cpus);
  const auto* const set = reinterpret_cast<const cpu_set_t*>(mask.data());
  if (sched_setaffinity(0, mask.size(), set) != 0) return false;
  bool is_bound = true;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", unreadable)) {
    const int thread = std::atoi(entry.path().filename().c_str());
    // A thread that has ended meanwhile needs no processors.
    if (thread > 0 && sched_setaffinity(thread, mask.size(), set) != 0 && errno != ESRCH) is_bound = false;
  }
  return is_bound && !unreadable;
}

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
