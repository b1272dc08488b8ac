// SPDX-License-Identifier: BSD-3-Clause
#include "core/processors.hpp"

#include <algorithm>
#include <filesystem>
#include <sched.h>
#include <sys/stat.h>
#include <thread>

#include "core/text_stream.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// Quota and period of a group. Version 2 has "max 100000" or "150000 100000" in one file, version 1 two files, with -1
/// for no limit.
std::optional<double> quota_in(const fs::path& group) {
  double quota = 0;
  double period = 0;
  FileReader second(group / "cpu.max");
  FileReader first_quota(group / "cpu.cfs_quota_us");
  FileReader first_period(group / "cpu.cfs_period_us");
  const bool is_known = second ? static_cast<bool>(second >> quota >> period)
                               : static_cast<bool>(first_quota >> quota) && static_cast<bool>(first_period >> period);
  if (!is_known || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::string identity_of(const fs::path& group) {
  struct stat status {};
  if (::stat(group.c_str(), &status) != 0) return group.string();
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

/// Looks at a group and at those that contain it.
void take_smallest(std::optional<CpuQuota>& smallest, const fs::path& mount, const std::string& group) {
  fs::path path = fs::path(group).relative_path();
  while (true) {
    const fs::path folder = mount / path;
    const std::optional<double> quota = quota_in(folder);
    if (quota && (!smallest || *quota < smallest->processors)) smallest = CpuQuota{*quota, identity_of(folder)};
    if (path.empty()) return;
    path = path.parent_path();
  }
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const std::string& root) {
  std::optional<CpuQuota> smallest;
  const fs::path mount = fs::path(root) / "sys/fs/cgroup";
  std::ifstream groups(fs::path(root) / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/job" or "4:cpu,cpuacct:/job"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (names.empty()) take_smallest(smallest, mount, group);
    if (("," + names + ",").find(",cpu,") == std::string::npos) continue;
    std::error_code missing;
    take_smallest(smallest, fs::exists(mount / names, missing) ? mount / names : mount / "cpu", group);
  }
  return smallest;
}

int usable_processors() {
  cpu_set_t mask;
  const bool is_known = ::sched_getaffinity(0, sizeof mask, &mask) == 0;  // fails with more than 1024 processors
  const int processors = is_known ? CPU_COUNT(&mask) : static_cast<int>(std::thread::hardware_concurrency());
  const std::optional<CpuQuota> quota = cpu_quota();
  return std::max(1, quota ? std::min(processors, static_cast<int>(quota->processors)) : processors);
}

}  // namespace lockstep
