// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/filter.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "ckpt/reading/failure.hpp"

namespace lockstep::ckpt {

Filter::Filter(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool is_expression = pattern.size() >= 2 && pattern.front() == '/' && pattern.back() == '/';
    if (!is_expression) {
      globs_.push_back(pattern);
      continue;
    }
    try {
      expressions_.emplace_back(pattern.substr(1, pattern.size() - 2));
    } catch (const std::regex_error&) {
      throw usage_error("--filter " + pattern + ": this is not a regular expression");
    }
  }
}

bool Filter::matches(const std::string& name) const {
  if (globs_.empty() && expressions_.empty()) return true;
  return std::any_of(globs_.begin(), globs_.end(),
                     [&name](const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; }) ||
         std::any_of(expressions_.begin(), expressions_.end(),
                     [&name](const std::regex& expression) { return std::regex_search(name, expression); });
}

}  // namespace lockstep::ckpt
