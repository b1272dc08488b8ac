// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/failure.hpp"

namespace lockstep::ckpt {

/// The rules of --rename, "from=to": a name that begins with `from` begins with `to`. The first rule that fits counts.
class Renaming {
 public:
  /// @throws Failure  a rule without '=', or with nothing to rename
  explicit Renaming(const std::vector<std::string>& rules) {
    for (const std::string& rule : rules) {
      const std::size_t equals = rule.find('=');
      if (equals == 0 || equals == std::string::npos) throw usage_error("--rename is written FROM=TO");
      rules_.emplace_back(rule.substr(0, equals), rule.substr(equals + 1));
    }
  }

  std::string apply(const std::string& name) const {
    for (const auto& [from, to] : rules_) {
      if (name.starts_with(from)) return to + name.substr(from.size());
    }
    return name;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rules_;
};

}  // namespace lockstep::ckpt
