// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/home_path.hpp"

#include <lockstep/core/error.hpp>

#include <pwd.h>

#include <algorithm>
#include <cctype>
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

/// The variable in a path that a shell would replace, such as "$USER" of "/a/$USER" or "${A}" of "${A}"; "" if there is
/// none. A text without a slash is no path, unless it is a variable and nothing else: "re:x$", "$1" and "5$US" are not.
std::string variable_in(const std::string& path) {
  for (std::size_t begin = path.find('$'); begin != std::string::npos; begin = path.find('$', begin + 1)) {
    const bool has_braces = path.compare(begin, 2, "${") == 0;
    const std::size_t name = begin + (has_braces ? 2 : 1);
    const std::size_t end = std::min(path.find_first_not_of(kVariableCharacters, name), path.size());
    if (name == end || std::isdigit(static_cast<unsigned char>(path[name])) != 0) continue;
    if (has_braces && (end == path.size() || path[end] != '}')) continue;
    const std::string variable = path.substr(begin, end - begin + (has_braces ? 1 : 0));
    if (variable == path || path.find('/') != std::string::npos) return variable;
  }
  return "";
}

std::string expanded(const std::string& path, const std::string& place) {
  if (const std::string variable = variable_in(path); !variable.empty()) {
    throw ConfigError(place + "'" + path + "': the variable " + variable +
                      " of the environment is not replaced here; write the path in full");
  }
  if (!path.starts_with('~')) return path;
  const std::size_t slash = path.find('/');
  const std::string user = path.substr(1, slash == std::string::npos ? slash : slash - 1);
  if (slash == std::string::npos && !user.empty()) return path;  // a name such as "~old"
  const std::string home = home_of(user);
  if (home.empty()) throw ConfigError(place + "'" + path + "': the home folder is unknown; write the path in full");
  return slash == std::string::npos ? home : home + path.substr(slash);
}

/// The length of "option=" at the beginning of an option in an entry; 0 if there is none.
std::size_t option_length(const std::string& text) {
  const std::size_t end = text.find_first_not_of(kVariableCharacters);
  return end != std::string::npos && end > 0 && text[end] == '=' ? end + 1 : 0;
}

}  // namespace

std::string with_home(const std::string& paths, const std::string& place) {
  if (paths.find_first_of("~$") == std::string::npos) return paths;
  std::vector<std::string> all = split(paths, ',');
  for (std::string& path : all) {
    const std::size_t option = option_length(path);
    path = path.substr(0, option) + expanded(path.substr(option), place);
  }
  return joined(all, ",");
}

}  // namespace lockstep
