// SPDX-License-Identifier: BSD-3-Clause
// The built-in curves: each reads its options from a rule and is then a pure function of position and value. Where a
// curve falls, it falls to `floor`, or to `final_factor` of the value.
#pragma once

#include <lockstep/schedule/schedule.hpp>

#include <optional>

namespace lockstep::schedule {

/// A jump takes place as much of its unit early: positions such as 1/3 of a run are rounded.
inline constexpr double kSlack = 1e-6;

/// A factor in [0, 1], or in [0, inf) if not `is_bounded`.
KeySpec factor_key(const std::string& name, const std::string& default_value, const std::string& help,
                   bool is_bounded = true);
/// One of `choices`, the first by default.
KeySpec choice_key(const std::string& name, const std::vector<std::string>& choices, const std::string& help);
/// `floor`: where a curve ends as a value, in place of final_factor.
KeySpec floor_key();
/// Given, or the default "nan": nothing.
std::optional<double> given(const Section& rule, const std::string& key);

/// The names of `numbers`, separated by commas.
std::string joined_names(const Numbers& numbers);

/// The value where a curve ends: a number, or a factor on the value that it gets.
struct Floor {
  explicit Floor(const Section& rule);  ///< @throws ConfigError  both floor and final_factor
  double under(double value) const { return level ? *level : value * factor; }

  std::optional<double> level;
  double factor = 0;
};

/// Since the window opened, at most its width.
inline double inside(const Window& window, double position) { return std::min(position, window.end) - window.begin; }
/// How far through the window, in [0, 1].
inline double progress(const Window& window, double position) { return inside(window, position) / window.width(); }
/// The same for curves that move in jumps: none happens at `end` or later.
inline double inside_jumps(const Window& window, double position) {
  return std::min(position - window.begin + kSlack, window.width() - kSlack);
}
/// 1 to 0 along half a cosine wave while `part` goes from 0 to 1.
double half_wave(double part);

/// The curves of one movement, of curves.cpp.
const std::vector<Curve>& simple_curves();
/// The curves with phases and those that repeat themselves, of cycles.cpp.
const std::vector<Curve>& cycle_curves();
Curve composite_curve();  ///< curves one after another
Curve plateau_curve();    ///< falls when a measured number no longer gets better

/// A rule within a rule: "cosine,final_factor=0.1", in `window`.
/// @throws ConfigError  as `parse` does, citing the inner rule
CurveShape parse_inner(const std::string& rule, const Window& window);

}  // namespace lockstep::schedule
