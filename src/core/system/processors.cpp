// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/processors.hpp"

#include <algorithm>
#include <filesystem>
#include <sched.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "core/system/control_groups.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"

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
