// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {

/// Calls `visit(controllers, group)` for each control group of this process, such as ("cpu,cpuacct", "/job"). Version 2
/// has no controllers.
/// @param root  folder that contains proc
template <class Visit>
void visit_control_groups(const std::filesystem::path& root, const Visit& visit) {
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
void visit_containing_groups(const std::filesystem::path& mount, const std::string& group, const Visit& visit) {
  std::filesystem::path path = std::filesystem::path(group).relative_path();
  visit(mount / path);
  while (!path.empty()) {
    path = path.parent_path();
    visit(mount / path);
  }
}

/// Whether a list such as "cpu,cpuacct" has this controller.
inline bool has_controller(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace lockstep
