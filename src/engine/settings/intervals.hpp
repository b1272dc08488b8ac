// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// An interval that can change during a run, in steps or epochs: "5" or "5,11:2" (every 5th one; from number 11 on,
/// every 2nd one). A pure function of the number, so that a resumed run needs nothing else.
class Intervals {
 public:
  Intervals(std::int64_t interval = 0) : parts_({{0, interval}}) {}  // NOLINT: a number is an interval
  /// @param min  lowest first interval; 0 = never
  /// @throws ConfigError  the text is malformed; begins with `cite`
  static Intervals parse(const std::string& text, std::int64_t min, const std::string& cite);

  /// Whether `number`, which counts from 1, is a multiple of the interval that applies to it.
  bool is_due(std::int64_t number) const;
  /// Never due.
  bool is_off() const noexcept { return parts_.size() == 1 && parts_.front().second == 0; }

  bool operator==(const Intervals&) const = default;

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> parts_;  // first number, interval; ascending
};

}  // namespace lockstep::engine
