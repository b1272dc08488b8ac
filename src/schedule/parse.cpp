// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/option_list.hpp>
#include <lockstep/core/table.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "curves.hpp"

namespace lockstep::schedule {

namespace {

KeySpecs inner_keys() {
  return {{.name = "begin", .type = KeyType::real, .default_value = "0", .help = "where it begins to move", .min = 0},
          {.name = "end",
           .type = KeyType::real,
           .default_value = "-1",
           .help = "where it no longer moves; -1: at the end of the run (plateau: never)",
           .min = -1},
          {.name = "base",
           .type = KeyType::real,
           .default_value = "nan",
           .help = "from begin on, in place of the value: makes factors absolute"}};
}

KeySpecs outer_keys() {
  KeySpecs keys = inner_keys();
  keys.push_back({.name = "by",
                  .type = KeyType::choice,
                  .default_value = "step",
                  .help = "what its numbers count; run: parts of the whole run",
                  .choices = {"step", "epoch", "samples", "run"}});
  keys.push_back({.name = "smooth",
                  .type = KeyType::boolean,
                  .default_value = "false",
                  .help = "by epoch: move at every step, not only between epochs"});
  keys.push_back({.name = "of", .type = KeyType::text, .default_value = "lr", .help = "option of the optimizer"});
  keys.push_back(
      {.name = "group", .type = KeyType::text, .default_value = "", .help = "the parameter group; empty: all"});
  return keys;
}

struct Written {
  const Curve& curve;
  Section options;
};

Written read(const std::string& text, const KeySpecs& common, const std::string& place,
             const std::vector<Curve>& curves) {
  if (std::count(text.begin(), text.end(), '(') != std::count(text.begin(), text.end(), ')')) {
    throw ConfigError(place + ": there are not as many '(' as ')'");
  }
  const std::vector<std::string> parts = split_list(text, ',');
  Written written{.curve = find_row(curves, parts.front(), place), .options = {}};
  for (const KeySpec& key : common) written.options.declare(key);
  for (const KeySpec& key : written.curve.keys) written.options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(written.options, parts[i], place);
  return written;
}

std::string shortest(double value) {
  std::ostringstream out;
  out.precision(10);
  out << value;
  return out.str();
}

Window window_of(const Section& rule, const Window& whole) {
  Window window = whole;
  window.begin = rule.real("begin");
  const double end = rule.real("end");
  if (end < 0 && end != -1) throw ConfigError("end: must be -1 or at least 0");
  if (end >= 0) window.end = end;
  if (window.begin < window.end) return window;
  throw ConfigError("begin (" + shortest(window.begin) + ") must be below end (" + shortest(window.end) +
                    (end < 0 ? ", the end of the run)" : ")"));
}

Shape shape_of(const Written& written, const Window& window) {
  if (written.curve.make == nullptr) throw ConfigError(written.curve.name + " cannot be a part of another curve");
  Shape shape = written.curve.make(written.options, window);
  const auto base = given(written.options, "base");
  if (!base) return shape;
  return [shape = std::move(shape), base = *base, begin = window.begin](double at, double value) {
    return at < begin ? value : shape(at, base);
  };
}

/// What a rule counts by.
struct Unit {
  std::function<double(std::int64_t step)> at;
  double whole = 0;               ///< of the run
  std::int64_t steps_in_one = 0;  ///< where the edges of a window lie at whole steps; else 0
};

std::int64_t known(std::int64_t number, const std::string& what) {
  if (number <= 0) throw ConfigError("by: " + what);
  return number;
}

Unit unit_of(const Section& rule, const RunLength& length) {
  const std::string& by = rule.text("by");
  const auto total = static_cast<double>(length.total_steps);
  if (rule.boolean("smooth") && by != "epoch") throw ConfigError("smooth: goes with by=epoch alone");
  if (by == "epoch") {
    const std::int64_t steps = known(length.steps_per_epoch, "the run has no epochs");
    const auto size = static_cast<double>(steps);
    if (rule.boolean("smooth")) {
      return {.at = [size](std::int64_t step) { return static_cast<double>(step) / size; },
              .whole = total / size,
              .steps_in_one = steps};
    }
    return {.at = [steps](std::int64_t step) { return static_cast<double>(step / steps); }, .whole = total / size};
  }
  if (by == "samples") {
    const auto samples = static_cast<double>(known(length.samples_per_step, "the run counts no samples"));
    return {.at = [samples](std::int64_t step) { return static_cast<double>(step) * samples; },
            .whole = total * samples};
  }
  if (by == "run") {
    known(length.total_steps, "the run has no end");
    return {.at = [total](std::int64_t step) { return static_cast<double>(step) / total; }, .whole = 1};
  }
  return {.at = [](std::int64_t step) { return static_cast<double>(step); }, .whole = total};
}

/// The last whole step at or before `position`.
double at_whole_step(double position, std::int64_t steps_in_one) {
  const auto steps = static_cast<double>(steps_in_one);
  return std::floor(position * steps + kSlack) / steps;
}

Schedule::Rule parse_rule(const std::string& text, const RunLength& length, const std::string& place,
                          const std::vector<Curve>& curves) {
  const Written written = read(text, outer_keys(), place, curves);
  const Section& options = written.options;
  try {
    Unit unit = unit_of(options, length);
    // What answers to measurements has no shape that the run's end could be a part of, and a run may be prolonged.
    if (written.curve.make_feedback != nullptr) unit.whole = std::numeric_limits<double>::infinity();
    Window window = window_of(options, {.begin = 0, .end = unit.whole, .curves = &curves});
    if (unit.steps_in_one > 0) {
      window.begin = at_whole_step(window.begin, unit.steps_in_one);
      window.end = at_whole_step(window.end, unit.steps_in_one);
    }
    Schedule::Rule rule{
        .option = options.text("of"), .group = options.text("group"), .at = unit.at, .shape = {}, .feedback = {}};
    if (written.curve.make_feedback != nullptr) {
      rule.feedback = written.curve.make_feedback(options, window);
    } else {
      rule.shape = shape_of(written, window);
    }
    return rule;
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + error.what());
  }
}

}  // namespace

Shape parse_inner(const std::string& rule, const Window& window) {
  const std::string place = "'" + rule + "'";
  const Written written = read(rule, inner_keys(), place, *window.curves);
  try {
    return shape_of(written, window_of(written.options, window));
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + error.what());
  }
}

const std::vector<Curve>& builtin_curves() {
  static const std::vector<Curve> curves = {
      constant_curve(),  linear_curve(), quadratic_curve(),      exponential_curve(),  step_curve(),
      multistep_curve(), cosine_curve(), polynomial_curve(),     inverse_sqrt_curve(), wsd_curve(),
      one_cycle_curve(), cyclic_curve(), cosine_restart_curve(), composite_curve(),    plateau_curve()};
  return curves;
}

Schedule parse(const std::vector<std::string>& rules, const RunLength& length, const std::string& origin,
               const std::vector<Curve>& curves) {
  std::vector<Schedule::Rule> parsed;
  for (const std::string& rule : rules) {
    parsed.push_back(parse_rule(rule, length, origin + ": sched.rule '" + rule + "'", curves));
  }
  return Schedule(std::move(parsed));
}

KeySpecs sched_keys(const std::vector<Curve>& curves) {
  std::string names;
  std::vector<KeySpec> parts = {{.name = "every curve",
                                 .type = KeyType::text,
                                 .default_value = "",
                                 .help = "options of all",
                                 .parts = outer_keys()}};
  for (const Curve& curve : curves) {
    names += (names.empty() ? "" : ", ") + curve.name;
    parts.push_back(
        {.name = curve.name, .type = KeyType::text, .default_value = "", .help = curve.help, .parts = curve.keys});
  }
  return {
      {.name = "sched.rule",
       .type = KeyType::texts,
       .default_value = "",
       .help =
           "a curve that the lr follows, such as cosine,begin=100,final_factor=0.1; each takes what the ones before "
           "it leave (" +
           names + ")",
       .parts = std::move(parts)}};
}

}  // namespace lockstep::schedule
