// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/home_path.hpp"

#include <lockstep/core/error.hpp>

#include <pwd.h>

#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "core/text/text.hpp"

namespace lockstep {

namespace {

constexpr const char* kVariableCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

/// @param user  empty = this one
std::string home_of(const std::string& user) {
  const char* const home = std::getenv("HOME");
  if (user.empty() && home != nullptr && *home != '\0') return home;
  const passwd* const entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  return entry == nullptr || entry->pw_dir == nullptr ? "" : entry->pw_dir;
}

/// Whether the path begins with a variable, as in "$SCRATCH/a" and "${SCRATCH}/a".
bool begins_with_variable(const std::string& path) {
  if (!path.starts_with('$')) return false;
  const bool has_braces = path.starts_with("${");
  const std::size_t begin = has_braces ? 2 : 1;
  const std::size_t end = path.find(has_braces ? "}/" : "/", begin);
  return end != std::string::npos && end > begin && path.find_first_not_of(kVariableCharacters, begin) == end;
}

std::string expanded(const std::string& path) {
  if (begins_with_variable(path)) {
    throw ConfigError("'" + path + "': variables of the environment are not replaced here; write the path in full");
  }
  if (!path.starts_with('~')) return path;
  const std::size_t slash = path.find('/');
  const std::string user = path.substr(1, slash == std::string::npos ? slash : slash - 1);
  if (slash == std::string::npos && !user.empty()) return path;  // a name such as "~old"
  const std::string home = home_of(user);
  if (home.empty()) throw ConfigError("'" + path + "': the home folder is unknown; write the path in full");
  return slash == std::string::npos ? home : home + path.substr(slash);
}

}  // namespace

std::string with_home(const std::string& paths) {
  if (paths.find_first_of("~$") == std::string::npos) return paths;
  std::vector<std::string> all = split(paths, ',');
  for (std::string& path : all) path = expanded(path);
  return joined(all, ",");
}

}  // namespace lockstep
