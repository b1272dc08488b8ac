// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/name_pattern.hpp"

#include <algorithm>

#include "core/text/text.hpp"

namespace lockstep {

bool matches_name(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() && matches_name(pattern.substr(1), name.substr(1));
  }
  for (std::size_t taken = 0;; ++taken) {
    if (matches_name(pattern.substr(1), name.substr(taken))) return true;
    if (taken == name.size() || name[taken] == '.') return false;
  }
}

bool covers_name(std::string_view pattern, std::string_view name) {
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (matches_name(pattern, name.substr(0, dot))) return true;
  }
  return matches_name(pattern, name);
}

bool cover_name(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [name](const std::string& pattern) { return covers_name(pattern, name); });
}

std::vector<std::string> name_patterns(const std::string& text) { return words_in(text, '/'); }

}  // namespace lockstep
