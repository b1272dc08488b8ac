// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/text/table.hpp"
#include "schedule/curves.hpp"
#include "schedule/named_schedule.hpp"

namespace lockstep::schedule {

namespace {

/// The options of every rule, also of one inside another rule.
KeySpecs inner_keys() {
  return {keys::real("begin", "0", "Start of the window", 0),
          keys::real("end", "-1", "End of the window. -1 = the end of the run (plateau: unlimited)", -1),
          keys::real("base", "nan",
                     "Value that replaces the configured one from begin on, so that factors become absolute")};
}

using Written = ChosenRow<Curve>;

Written read(const std::string& text, const KeySpecs& common, const std::string& place,
             const std::vector<Curve>& curves) {
  if (std::count(text.begin(), text.end(), '(') != std::count(text.begin(), text.end(), ')')) {
    throw ConfigError(place + ": the numbers of '(' and ')' differ");
  }
  return choose_row(curves, text, common, place, place);
}

Window window_of(const Section& rule, const Window& whole) {
  Window window = whole;
  window.begin = rule.real("begin");
  const double end = rule.real("end");
  if (end < 0 && end != -1) throw ConfigError("end: must be -1 or at least 0");
  if (end >= 0) window.end = end;
  if (window.begin < window.end) return window;
  throw ConfigError("begin (" + number_text(window.begin) + ") must be less than end (" + number_text(window.end) +
                    (end < 0 ? ", the end of the run)" : ")"));
}

CurveShape shape_of(const Written& written, const Window& window) {
  if (written.row->make == nullptr) throw ConfigError(written.row->name + " cannot be a part of another curve");
  CurveShape shape = written.row->make(written.options, window);
  if (!shape) throw ConfigError(written.row->name + ": its function `make` returned nothing");
  const std::optional<double> base = given(written.options, "base");
  if (!base) return shape;
  return [shape = std::move(shape), base = *base, begin = window.begin](double position, double value) {
    return position < begin ? value : shape(position, base);
  };
}

/// The unit that a rule counts by.
struct Unit {
  std::function<double(std::int64_t step)> position;
  double whole = 0;               ///< length of the run in this unit
  std::int64_t steps_in_one = 0;  ///< steps in one unit, if the edges of a window lie at whole steps; else 0
};

std::int64_t known(std::int64_t number, const std::string& what) {
  if (number <= 0) throw ConfigError("by: " + what);
  return number;
}

Unit unit_of(const Section& rule, const RunLength& length) {
  const std::string& by = rule.text("by");
  const bool is_smooth = rule.boolean("smooth");
  const auto total = static_cast<double>(length.total_steps);
  if (is_smooth && by != "epoch") throw ConfigError("smooth: requires by=epoch");
  if (by == "epoch") {
    const std::int64_t steps = known(length.steps_per_epoch, "the run has no epochs");
    const auto size = static_cast<double>(steps);
    if (is_smooth) {
      return {.position = [size](std::int64_t step) { return static_cast<double>(step) / size; },
              .whole = total / size,
              .steps_in_one = steps};
    }
    return {.position = [steps](std::int64_t step) { return static_cast<double>(step / steps); },
            .whole = total / size};
  }
  if (by == "samples") {
    const auto samples = static_cast<double>(known(length.samples_per_step, "the run does not count samples"));
    return {.position = [samples](std::int64_t step) { return static_cast<double>(step) * samples; },
            .whole = total * samples};
  }
  if (by == "run") {
    known(length.total_steps, "the length of the run is unlimited");
    return {.position = [total](std::int64_t step) { return static_cast<double>(step) / total; }, .whole = 1};
  }
  return {.position = [](std::int64_t step) { return static_cast<double>(step); }, .whole = total};
}

/// The last whole step at or before `position`.
double at_whole_step(double position, std::int64_t steps_in_one) {
  const auto steps = static_cast<double>(steps_in_one);
  return std::floor(position * steps + kSlack) / steps;
}

/// Why a rule has no effect: it lasts to the end of the run, but begins later. "" if it has one.
std::string reason_of_no_use(const Section& rule, double whole) {
  const double begin = rule.real("begin");
  if (rule.real("end") >= 0 || whole <= 0 || begin < whole) return "";
  return "not used: begin (" + number_text(begin) + ") is not less than the end of the run (" + number_text(whole) +
         ")";
}

/// @param unused  gets a sentence if the rule has no effect
Schedule::ScheduledRule parse_rule(const std::string& text, const RunLength& length, const std::string& place,
                                   const std::vector<Curve>& curves, std::vector<std::string>& unused) {
  const Written written = read(text, common_curve_keys(), place, curves);
  const Section& options = written.options;
  try {
    Unit unit = unit_of(options, length);
    // A rule that answers to measurements has no shape that the run's end could be a part of, and a run may be
    // prolonged.
    if (written.row->make_feedback != nullptr) unit.whole = std::numeric_limits<double>::infinity();
    Schedule::ScheduledRule rule{.option = options.text("of"),
                                 .group = options.text("group"),
                                 .part = options.text("part"),
                                 .position = unit.position,
                                 .shape = {},
                                 .feedback = {}};
    const std::string reason = written.row->make_feedback != nullptr ? "" : reason_of_no_use(options, unit.whole);
    if (!reason.empty()) {
      unused.push_back(place + ": " + reason);
      rule.shape = [](double, double value) { return value; };
      return rule;
    }
    Window window = window_of(options, {.begin = 0, .end = unit.whole, .curves = &curves});
    if (unit.steps_in_one > 0) {
      window.begin = at_whole_step(window.begin, unit.steps_in_one);
      window.end = at_whole_step(window.end, unit.steps_in_one);
    }
    if (written.row->make_feedback != nullptr) {
      rule.feedback = written.row->make_feedback(options, window);
      if (!rule.feedback) throw ConfigError("its function `make_feedback` returned nothing");
    } else {
      rule.shape = shape_of(written, window);
    }
    return rule;
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + error.what());
  }
}

std::string place_of(const std::string& rule, const std::string& origin) {
  return origin + ": sched.rule '" + rule + "'";
}

}  // namespace

CurveShape parse_inner(const std::string& rule, const Window& window) {
  const std::string place = "'" + rule + "'";
  const Written written = read(rule, inner_keys(), place, *window.curves);
  try {
    return shape_of(written, window_of(written.options, window));
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + error.what());
  }
}

const KeySpecs& common_curve_keys() {
  static const KeySpecs common = [] {
    KeySpecs all = inner_keys();
    all.push_back(keys::choice("by", "step", "Unit of positions and lengths. run = fractions of the whole run",
                               {"step", "epoch", "samples", "run"}));
    all.push_back(
        keys::boolean("smooth", "false", "With by=epoch, change the value at every step instead of between epochs"));
    all.push_back(keys::text("of", "lr", "Option of the optimizer"));
    all.push_back(keys::text("group", "", "Parameter group. If empty, all groups are used"));
    all.push_back(keys::text("part", "", "Part of the parameters (optim.part). If empty, all parts are used"));
    return all;
  }();
  return common;
}

const std::vector<Curve>& builtin_curves() {
  static const std::vector<Curve> curves = [] {
    std::vector<Curve> all = simple_curves();
    all.insert(all.end(), cycle_curves().begin(), cycle_curves().end());
    all.insert(all.end(), {composite_curve(), plateau_curve()});
    return all;
  }();
  return curves;
}

Schedule parse(const std::vector<std::string>& rules, const RunLength& length, const std::string& origin,
               const std::vector<Curve>& curves) {
  std::vector<Schedule::ScheduledRule> parsed;
  std::vector<std::string> unused;
  for (const std::string& rule : rules) {
    parsed.push_back(parse_rule(rule, length, place_of(rule, origin), curves, unused));
  }
  return Schedule(std::move(parsed), std::move(unused));
}

void check_rules(const std::vector<std::string>& rules, const std::string& origin, const std::vector<Curve>& curves) {
  for (const std::string& rule : rules) read(rule, common_curve_keys(), place_of(rule, origin), curves);
}

KeySpecs sched_keys(const std::vector<Curve>& curves) {
  const auto part = [](const std::string& name, const std::string& help, const KeySpecs& options) {
    KeySpec key = keys::text(name, "", help);
    key.parts = options;
    return key;
  };
  KeySpec rule = keys::texts("sched.rule", "",
                             "A rule of a schedule that sched.name does not describe, such as "
                             "cosine,begin=100,final_factor=0.1. Several rules "
                             "are applied in order (" +
                                 joined(names_of(curves)) + ")");
  rule.parts.push_back(part("all rules", "Common options", common_curve_keys()));
  for (const Curve& curve : curves) rule.parts.push_back(part(curve.name, curve.help, curve.keys));
  KeySpecs keys = named_keys();
  keys.push_back(rule);
  return keys::titled("Learning rate schedule", keys);
}

}  // namespace lockstep::schedule
