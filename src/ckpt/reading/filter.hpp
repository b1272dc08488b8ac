// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace lockstep::ckpt {

/// The words of --filter: globs (`layers.*.weight`; `*` matches dots and slashes too) and regular expressions between
/// slashes (`/^conv[0-9]/`, which may match any part of a name).
class Filter {
 public:
  /// @param patterns  none matches everything, and of several one is enough
  /// @throws Failure  a malformed expression
  explicit Filter(const std::vector<std::string>& patterns);

  bool matches(const std::string& name) const;

 private:
  std::vector<std::string> globs_;
  std::vector<std::regex> expressions_;
};

}  // namespace lockstep::ckpt
