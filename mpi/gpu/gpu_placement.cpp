// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/gpu/gpu_placement.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <set>
#include <unistd.h>

#include "core/system/process.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/module_api.hpp"
#include "mpi/process/launch.hpp"

namespace lockstep::mpi {

namespace {

/// The form that Linux has in the names of its folders.
std::string lower(std::string bus_id) {
  std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return bus_id;
}

/// The number N of the file /dev/nvidiaN; empty = the driver does not say it.
std::string device_number(const std::string& bus_id, const std::string& root) {
  constexpr const char* kKey = "Device Minor:";
  std::ifstream file(root + "/proc/driver/nvidia/gpus/" + lower(bus_id) + "/information");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    const std::size_t begin = line.find_first_of("0123456789");
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_of("0123456789") - begin + 1);
  }
  return "";
}

/// Why the binding of the launcher slows ranks down; empty = it does not. Collective.
std::string narrow_binding(const Communicator& host, bool is_bound, int cores) {
  const bool is_narrow = is_bound && cores < kMinCoresPerGpu;
  const int fewest = host.all_reduce(is_narrow ? cores : kMinCoresPerGpu, Op::min);
  if (fewest >= kMinCoresPerGpu) return "";
  return "a rank on " + host_name() + " is bound to " + std::to_string(fewest) + (fewest == 1 ? " core" : " cores") +
         ", which its threads (steps, backward, NCCL, loading) share: bind ranks with a GPU to at least " +
         std::to_string(kMinCoresPerGpu) +
         " cores each, or to none (mpirun --bind-to none, or --map-by slot:PE=N --bind-to core; srun "
         "--cpus-per-task=N); a rank that is not bound binds itself near its GPU";
}

/// Why NCCL cannot use all direct connections; empty = it can. Collective.
std::string hidden_peers(const Communicator& host, const Gpu& gpu) {
  const std::vector<std::string> all = host.all_gather(gpu.bus_id());
  const std::set<std::string> used(all.begin(), all.end());
  bool is_hidden = false;
  if (static_cast<std::size_t>(gpu.api().device_count) < used.size()) {
    is_hidden = std::any_of(used.begin(), used.end(), [&gpu](const std::string& bus_id) {
      return bus_id != gpu.bus_id() && !can_open_gpu(bus_id);
    });
  }
  if (host.all_reduce(static_cast<std::uint8_t>(is_hidden), Op::max) == 0) return "";
  return "a rank on " + host_name() +
         " may not open the GPUs of the other ranks, so that NCCL does not use direct connections (NVLink, PCIe) "
         "between them: let each rank see all GPUs of its host (srun --gpu-bind=none instead of --gpus-per-task; one "
         "container for all ranks)";
}

/// Position and number of ranks with the same list. Collective.
void find_sharers(const Communicator& host, GpuNeighborhood& neighborhood) {
  std::string list;
  for (const int cpu : neighborhood.near) list += std::to_string(cpu) + ",";
  const std::vector<std::string> lists = host.all_gather(list);
  neighborhood.ranks = static_cast<int>(std::count(lists.begin(), lists.end(), list));
  neighborhood.position = static_cast<int>(std::count(lists.begin(), lists.begin() + host.rank(), list));
}

}  // namespace

Cpus processors_near_gpu(const GpuNeighborhood& neighborhood) {
  Cpus usable;
  std::set_intersection(neighborhood.allowed.begin(), neighborhood.allowed.end(), neighborhood.near.begin(),
                        neighborhood.near.end(), std::back_inserter(usable));
  std::map<int, Cpus> cores;
  for (const int cpu : usable) cores[neighborhood.core_of.at(cpu)].push_back(cpu);
  const auto count = static_cast<int>(cores.size());
  Cpus chosen = usable;
  if (neighborhood.ranks > 1 && count / neighborhood.ranks >= kMinCoresPerGpu) {
    chosen.clear();
    const auto border = [&](int position) { return std::next(cores.begin(), position * count / neighborhood.ranks); };
    for (auto core = border(neighborhood.position); core != border(neighborhood.position + 1); ++core) {
      chosen.insert(chosen.end(), core->second.begin(), core->second.end());
    }
    std::sort(chosen.begin(), chosen.end());
  }
  return chosen == neighborhood.allowed ? Cpus() : chosen;
}

Cpus processors_near_device(const std::string& bus_id, const std::string& root) {
  std::ifstream file(root + "/sys/bus/pci/devices/" + lower(bus_id) + "/local_cpulist");
  std::string list;
  std::getline(file, list);
  return parse_cpu_list(list);
}

bool can_open_gpu(const std::string& bus_id, const std::string& root) {
  const std::string number = device_number(bus_id, root);
  return !number.empty() && access((root + "/dev/nvidia" + number).c_str(), R_OK | W_OK) == 0;
}

GpuPlacement place_near_gpu(const Communicator& host, const Gpu& gpu, bool binds) {
  GpuPlacement placement;
  const bool is_bound = is_bound_by_launcher(current_variables());
  GpuNeighborhood here{.allowed = cpus_in(affinity_mask()), .near = processors_near_device(gpu.bus_id())};
  here.core_of = cores_of(here.allowed);
  const std::string narrow = narrow_binding(host, is_bound, count_cores(here.allowed, here.core_of));
  const std::string hidden = hidden_peers(host, gpu);
  for (const std::string& warning : {narrow, hidden}) {
    if (!warning.empty()) placement.warnings.push_back(warning);
  }
  find_sharers(host, here);
  if (!binds || is_bound) return placement;
  const Cpus chosen = processors_near_gpu(here);
  if (!chosen.empty() && bind_process(chosen)) placement.bound = chosen;
  return placement;
}

}  // namespace lockstep::mpi
