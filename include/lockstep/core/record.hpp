// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// A number or a word.
using NamedValue = std::variant<double, std::int64_t, std::string>;

/// Values by name, in the order in which files show them.
using NamedValues = std::vector<std::pair<std::string, NamedValue>>;

/// The number that `value` holds; none for a word.
std::optional<double> number_in(const NamedValue& value);

/// What was measured at one step: one line of the metrics files. The step itself is the value "step".
struct Record {
  using Value = NamedValue;
  std::string kind = {};  ///< "train", "eval", ...
  NamedValues values = {};

  /// The number called `name`; none where there is no such number.
  std::optional<double> number(const std::string& name) const;
};

}  // namespace lockstep
