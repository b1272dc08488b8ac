// SPDX-License-Identifier: BSD-3-Clause
// How the schedules of other libraries are written as rules of Lockstep, and a comparison with their stored values.
#pragma once

#include <lockstep/schedule/schedule.hpp>

#include "support/reference.hpp"

namespace lockstep::testing::reference {

using Rules = std::vector<std::string>;

/// A closed form against a recursion over some ten steps.
inline constexpr Tolerance kClosedForm{.absolute = 1e-15, .relative = 1e-9};

/// The shortest text that gives the same double back.
std::string text_of(double value);
/// A list as it stands in a rule: "1/2/3".
std::string text_of(const std::vector<double>& values);
/// Writes a rule option by option.
class RuleText {
 public:
  explicit RuleText(std::string curve) : text_(std::move(curve)) {}
  RuleText& add(const std::string& key, const std::string& value) {
    text_ += "," + key + "=" + value;
    return *this;
  }
  RuleText& add(const std::string& key, double value) { return add(key, text_of(value)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// One run of an optimizer's groups under rules.
struct Played {
  Rules rules;
  schedule::RunLength length = {.total_steps = 1'000'000'000};
  std::vector<schedule::Numbers> groups;        ///< options as configured; the groups are called "0", "1", ...
  std::vector<std::vector<std::string>> shown;  ///< names of the options shown, by group and row
  Rules monitors = {};                          ///< monitors: what the measured numbers are called
  std::vector<double> measured = {};            ///< measured[i - 1] comes before row i
};

/// The shown options in every row of `rows`: once straight through, and once with state saved and loaded at `at_row`
/// into a schedule that has seen nothing.
void expect_played(const Played& played, const std::vector<std::vector<double>>& rows, std::size_t at_row,
                   const Tolerance& tolerance = kClosedForm);
/// Rows of {"lr": ..} or [..] entries, flattened.
std::vector<std::vector<double>> flat_rows(const Json& rows);

void run_mmengine(const Json& one_case);
void run_torch(const Json& one_case);
void run_fvcore(const Json& one_case);
void run_detectron2(const Json& one_case);
void run_vissl(const Json& one_case);

}  // namespace lockstep::testing::reference
