// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/resources.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// Calls `visit(controllers, group)` for each control group of this process, such as ("cpu,cpuacct", "/job"). Version 2
/// has no controllers.
/// @param root  folder that contains proc
template <class Visit>
void visit_control_groups(const fs::path& root, const Visit& visit) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/job" or "4:memory:/job"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    visit(line.substr(first + 1, second - first - 1), line.substr(second + 1));
  }
}

/// Calls `visit` for the folder of a control group and for those of the groups that contain it.
/// @param mount  folder on which the groups are mounted
template <class Visit>
void visit_containing_groups(const fs::path& mount, const std::string& group, const Visit& visit) {
  fs::path path = fs::path(group).relative_path();
  visit(mount / path);
  while (!path.empty()) {
    path = path.parent_path();
    visit(mount / path);
  }
}

/// Whether a list such as "cpu,cpuacct" has this controller.
bool has_controller(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // version 1 writes a number near 2^63 for "no limit"

/// The files of a version of control groups.
struct GroupFiles {
  const char* limit;
  const char* usage;
  std::vector<std::string> cached;  ///< lines of memory.stat
};

const GroupFiles kSecond = {"memory.max", "memory.current", {"inactive_file", "active_file"}};
const GroupFiles kFirst = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};

/// The number after a name at the start of a line.
std::optional<std::int64_t> number_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  for (std::string line; std::getline(file, line);) {
    TextReader words(line);
    std::int64_t number = 0;
    if (words >> word && word == name && words >> number) return number;
  }
  return std::nullopt;
}

/// The number that a file begins with; none also for "max".
std::optional<std::int64_t> number_of(const fs::path& path) {
  FileReader file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// An entry of the process's status, which is in kB there.
double status_mb(const std::string& entry) {
  return static_cast<double>(number_in("/proc/self/status", entry).value_or(0)) / 1024;
}

std::optional<std::int64_t> left_in_group(const fs::path& group, const GroupFiles& files) {
  const auto limit = number_of(group / files.limit);
  const auto usage = number_of(group / files.usage);
  if (!limit || !usage || *limit >= kNoLimit) return std::nullopt;
  std::int64_t left = *limit - *usage;
  for (const std::string& name : files.cached) left += number_in(group / "memory.stat", name).value_or(0);
  return std::clamp<std::int64_t>(left, 0, *limit);
}

/// Calls `visit` for each group that limits the memory of this process, with the names of its files.
template <class Visit>
void visit_memory_groups(const fs::path& root, const Visit& visit) {
  const fs::path mount = root / "sys/fs/cgroup";
  visit_control_groups(root, [&](const std::string& controllers, const std::string& group) {
    const bool is_second = controllers.empty();
    if (!is_second && !has_controller(controllers, "memory")) return;
    visit_containing_groups(is_second ? mount : mount / "memory", group,
                            [&](const fs::path& folder) { visit(folder, is_second ? kSecond : kFirst); });
  });
}

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

/// Folders on which hierarchies of control groups are mounted.
struct GroupMounts {
  std::vector<fs::path> unified;  ///< version 2, also beside version 1
  std::vector<fs::path> cpu;      ///< version 1 with the controller of processors
};

/// The usual places, and others that /proc/self/mountinfo states in lines such as
/// "31 24 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu".
GroupMounts mounts_in(const fs::path& root) {
  const fs::path usual = root / "sys/fs/cgroup";
  GroupMounts mounts{.unified = {usual, usual / "unified"}, .cpu = {usual / "cpu", usual / "cpu,cpuacct"}};
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = split_list(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const fs::path place = root / fs::path(words[4]).relative_path();
    if (dash[1] == "cgroup2") mounts.unified.push_back(place);
    if (dash[1] == "cgroup" && has_controller(dash[3], "cpu")) mounts.cpu.push_back(place);
  }
  return mounts;
}

}  // namespace

std::optional<std::int64_t> available_memory(const std::string& root) {
  std::optional<std::int64_t> least = number_in(fs::path(root) / "proc/meminfo", "MemAvailable:");
  if (least) *least *= 1024;
  visit_memory_groups(root, [&](const fs::path& folder, const GroupFiles& files) {
    const std::optional<std::int64_t> left = left_in_group(folder, files);
    if (left) least = std::min(least.value_or(*left), *left);
  });
  return least;
}

std::optional<std::int64_t> memory_limit(const std::string& root) {
  std::optional<std::int64_t> smallest;
  visit_memory_groups(root, [&](const fs::path& folder, const GroupFiles& files) {
    const std::optional<std::int64_t> limit = number_of(folder / files.limit);
    if (limit && *limit < kNoLimit) smallest = std::min(smallest.value_or(*limit), *limit);
  });
  return smallest;
}

double peak_memory_mb() { return status_mb("VmHWM:"); }

double resident_memory_mb() { return status_mb("VmRSS:"); }

std::optional<CpuQuota> cpu_quota(const std::string& root) {
  std::optional<CpuQuota> smallest;
  const GroupMounts mounts = mounts_in(root);
  visit_control_groups(root, [&](const std::string& controllers, const std::string& group) {
    const bool is_second = controllers.empty();
    if (!is_second && !has_controller(controllers, "cpu")) return;
    for (const fs::path& mount : is_second ? mounts.unified : mounts.cpu) {
      visit_containing_groups(mount, group, [&](const fs::path& folder) {
        const std::optional<double> quota = quota_in(folder);
        if (quota && (!smallest || *quota < smallest->processors)) smallest = CpuQuota{*quota, identity_of(folder)};
      });
    }
  });
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
