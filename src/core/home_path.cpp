// SPDX-License-Identifier: BSD-3-Clause
#include "core/home_path.hpp"

#include <lockstep/core/error.hpp>

#include <pwd.h>

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

namespace lockstep {

namespace {

/// @param user  empty = this one
std::string home_of(const std::string& user) {
  const char* const home = std::getenv("HOME");
  if (user.empty() && home != nullptr && *home != '\0') return home;
  const passwd* const entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  return entry == nullptr || entry->pw_dir == nullptr ? "" : entry->pw_dir;
}

std::string expanded(const std::string& path) {
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
  if (paths.find('~') == std::string::npos) return paths;
  std::string all;
  for (std::size_t begin = 0; begin <= paths.size();) {
    const std::size_t end = std::min(paths.find(',', begin), paths.size());
    all += (begin == 0 ? "" : ",") + expanded(paths.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

}  // namespace lockstep
