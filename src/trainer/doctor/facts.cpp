// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/facts.hpp"

#include <lockstep/mpi/communicator.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string_view>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/numbers/processor_level.hpp"
#include "core/system/process.hpp"
#include "core/system/resources.hpp"
#include "core/text/text_stream.hpp"
#include "engine/session.hpp"
#include "mpi/process/launch.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::trainer {

namespace fs = std::filesystem;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileFacts, fault, type, sync_ms, free_gb, quota_gb, clock_ahead_s, sees_first_rank)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessorFacts, number, core, node)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NeedFacts, refusal, shared_mb, bucket_mb, own_mb, checkpoint_mb, checkpoints)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, driver, errors)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DoctorFacts, host, versions, variables, level, vendor, launched, threads, processors,
                                   quota, allowed, host_cores, governor, open_files, locked_mb, has_fabric,
                                   available_mb, limit_mb, huge_pages, shares_by_name, shared_mb, shared_free_mb, stale,
                                   interfaces, runtimes, copies_twice, gpu, gpus, need, memory_gbs, products_gfs,
                                   latency_us, message_gbs, inside_gbs, between_gbs, files)

namespace {

constexpr double kMb = 1e6;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string first_word_of(const std::string& path) {
  FileReader file(path);
  std::string word;
  file >> word;
  return word;
}

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

/// Variables whose values change what a rank computes or how it communicates.
std::map<std::string, std::string> steering_variables() {
  constexpr std::string_view kPrefixes[] = {"LOCKSTEP_",  "OMP_",  "MKL_",    "NCCL_",           "LD_LIBRARY_PATH",
                                            "LD_PRELOAD", "ATEN_", "ONEDNN_", "OMPI_MCA_btl_tcp"};
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : mpi::current_variables()) {
    const bool steers =
        std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (steers) variables.emplace(name, value);
  }
  return variables;
}

/// The NUMA node of each processor; none for those of a system without nodes.
std::map<int, int> node_of_processors() {
  constexpr std::string_view kName = "node";
  std::map<int, int> nodes;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kName) || !is_number(name.substr(kName.size()))) continue;
    const int node = std::atoi(name.c_str() + kName.size());
    for (const int cpu : mpi::parse_cpu_list(first_word_of(entry.path() / "cpulist"))) nodes[cpu] = node;
  }
  return nodes;
}

std::vector<ProcessorFacts> allowed_processors() {
  const mpi::Cpus cpus = mpi::cpus_in(mpi::affinity_mask());
  const std::map<int, int> cores = mpi::cores_of(cpus);
  const std::map<int, int> nodes = node_of_processors();
  std::vector<ProcessorFacts> allowed;
  for (const int cpu : cpus) {
    const auto node = nodes.find(cpu);
    allowed.push_back({.number = cpu, .core = cores.at(cpu), .node = node == nodes.end() ? 0 : node->second});
  }
  return allowed;
}

int host_cores() {
  const mpi::Cpus cpus = mpi::parse_cpu_list(first_word_of("/sys/devices/system/cpu/online"));
  return mpi::count_cores(cpus, mpi::cores_of(cpus));
}

/// The word in brackets of "always [madvise] never"; "" = the system does not say.
std::string chosen_in(const std::string& path) {
  const std::string text = text_of(path);
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

/// The ranks that the launcher says it has started.
int launched_ranks(const mpi::Variables& variables) {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const auto found = variables.find(name);
    if (found != variables.end()) return std::max(std::atoi(found->second.c_str()), 1);
  }
  return 1;
}

/// The files that a process has mapped.
std::set<std::string> mapped_files(const std::string& process) {
  std::set<std::string> files;
  std::ifstream maps("/proc/" + process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path != std::string::npos) files.insert(line.substr(path));
  }
  return files;
}

/// Segments of MPI libraries of this user that no process has mapped.
std::vector<std::string> stale_segments() {
  std::set<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    const bool is_of_mpi = name.starts_with("vader_segment") || name.starts_with("sm_segment") ||
                           name.starts_with("mpich_shar") || name.starts_with("lockstep");
    if (is_of_mpi && entry.is_regular_file(ignored) && access(entry.path().c_str(), W_OK) == 0) {
      found.insert(entry.path());
    }
  }
  if (found.empty()) return {};
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    if (!is_number(process.path().filename())) continue;
    for (const std::string& file : mapped_files(process.path().filename())) found.erase(file);
  }
  return {found.begin(), found.end()};
}

std::vector<std::string> network_interfaces() {
  std::set<std::string> names;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const bool is_usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_usable && entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET) names.insert(entry->ifa_name);
  }
  freeifaddrs(first);
  return {names.begin(), names.end()};
}

/// The OpenMP libraries of this process, by file name.
std::vector<std::string> openmp_runtimes() {
  std::set<std::string> names;
  for (const std::string& file : mapped_files("self")) {
    const std::string name = fs::path(file).filename();
    if (name.starts_with("libgomp") || name.starts_with("libiomp") || name.starts_with("libomp")) names.insert(file);
  }
  return {names.begin(), names.end()};
}

double limit_of(int resource, double unit) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<double>(limit.rlim_cur) / unit;
}

}  // namespace

std::string packed(const DoctorFacts& facts) { return nlohmann::json(facts).dump(); }

DoctorFacts unpacked(const std::string& text) { return nlohmann::json::parse(text).get<DoctorFacts>(); }

DoctorFacts rank_facts(int threads) {
  const mpi::Variables variables = mpi::current_variables();
  DoctorFacts facts{.host = host_name()};
  facts.versions = {{"Lockstep", version()},
                    {"MPI", mpi::library_version()},
                    {"program", std::to_string(std::hash<std::string>()(text_of("/proc/self/exe")))}};
  for (const auto& [name, value] : engine::platform_facts()) {
    if (name == "libtorch" || name == "hdf5") facts.versions.emplace(name, value);
  }
  facts.variables = steering_variables();
  facts.level = name_of(processor_level());
  facts.vendor = name_of(processor_vendor());
  facts.launched = launched_ranks(variables);
  facts.threads = threads;
  facts.processors = usable_processors();
  if (const auto quota = cpu_quota()) facts.quota = quota->processors;
  facts.allowed = allowed_processors();
  facts.host_cores = host_cores();
  facts.governor = first_word_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  facts.open_files = static_cast<std::int64_t>(limit_of(RLIMIT_NOFILE, 1));
  facts.locked_mb = limit_of(RLIMIT_MEMLOCK, kMb);
  std::error_code ignored;
  facts.has_fabric = fs::exists("/sys/class/infiniband", ignored) && !fs::is_empty("/sys/class/infiniband", ignored);
  facts.available_mb = static_cast<double>(available_memory().value_or(0)) / kMb;
  facts.limit_mb = static_cast<double>(memory_limit().value_or(0)) / kMb;
  facts.huge_pages = chosen_in("/sys/kernel/mm/transparent_hugepage/enabled");
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) == 0) {
    facts.shared_mb = static_cast<double>(shared.f_blocks) * static_cast<double>(shared.f_frsize) / kMb;
    facts.shared_free_mb = static_cast<double>(shared.f_bavail) * static_cast<double>(shared.f_frsize) / kMb;
  }
  facts.stale = stale_segments();
  facts.interfaces = network_interfaces();
  facts.runtimes = openmp_runtimes();
  facts.copies_twice = !mpi::process_memory_remark().empty();
  return facts;
}

}  // namespace lockstep::trainer
