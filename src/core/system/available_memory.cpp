// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/available_memory.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/system/control_groups.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

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

void take_smaller(std::optional<std::int64_t>& least, std::optional<std::int64_t> other) {
  if (other) least = std::min(least.value_or(*other), *other);
}

std::optional<std::int64_t> left_in_group(const fs::path& group, const GroupFiles& files) {
  const auto limit = number_of(group / files.limit);
  const auto usage = number_of(group / files.usage);
  if (!limit || !usage || *limit >= kNoLimit) return std::nullopt;
  std::int64_t left = *limit - *usage;
  for (const std::string& name : files.cached) left += number_in(group / "memory.stat", name).value_or(0);
  return std::clamp<std::int64_t>(left, 0, *limit);
}

}  // namespace

std::optional<std::int64_t> available_memory(const std::string& root) {
  std::optional<std::int64_t> least = number_in(fs::path(root) / "proc/meminfo", "MemAvailable:");
  if (least) *least *= 1024;
  const fs::path mount = fs::path(root) / "sys/fs/cgroup";
  visit_control_groups(root, [&](const std::string& controllers, const std::string& group) {
    const bool is_second = controllers.empty();
    if (!is_second && !has_controller(controllers, "memory")) return;
    visit_containing_groups(is_second ? mount : mount / "memory", group, [&](const fs::path& folder) {
      take_smaller(least, left_in_group(folder, is_second ? kSecond : kFirst));
    });
  });
  return least;
}

}  // namespace lockstep
