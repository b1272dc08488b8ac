// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/table.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <algorithm>

#include "curves.hpp"

namespace lockstep::schedule {

namespace {

KeySpecs window_keys() {
  return {
      {.name = "begin", .type = KeyType::integer, .default_value = "0", .help = "first step that it moves", .min = 0},
      {.name = "end",
       .type = KeyType::integer,
       .default_value = "-1",
       .help = "first step that it no longer moves; -1: the end of the run",
       .min = -1}};
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

bool is_list(const KeySpec& spec) { return spec.type == KeyType::integers || spec.type == KeyType::reals; }

/// Inside a rule a list is separated by slashes, as the commas separate the options.
std::string with_commas(const KeySpec& spec, std::string list, const std::string& place) {
  const std::string written = list;
  std::replace(list.begin(), list.end(), '/', ',');
  if (fault_in(spec, list).empty()) return list;
  std::string range = range_of(spec);
  const std::string commas = "commas";
  range.replace(range.rfind(commas), commas.size(), "slashes");
  throw ConfigError(place + ": " + spec.name + ": '" + written + "' is not " + range);
}

/// Takes over one "key=value".
void set_option(Section& rule, const std::string& option, const std::string& place) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos) throw ConfigError(place + ": '" + option + "' is not written key=value");
  const std::string key = trimmed(option.substr(0, equals));
  std::string value = trimmed(option.substr(equals + 1));
  const auto found = rule.values().find(key);
  if (found != rule.values().end()) {
    if (!rule.is_default(key)) throw ConfigError(place + ": " + key + " is given twice");
    const KeySpec& spec = found->second.spec;
    if (is_list(spec)) value = with_commas(spec, value, place);
  }
  rule.set(key, value, place);
}

Window window_of(const Section& rule, std::int64_t total_steps) {
  const Window window{.begin = rule.integer("begin"),
                      .end = rule.integer("end") < 0 ? total_steps : rule.integer("end")};
  if (window.begin < window.end) return window;
  throw ConfigError("begin (" + std::to_string(window.begin) + ") must be below end (" + std::to_string(window.end) +
                    (rule.is_default("end") ? ", the steps of the run)" : ")"));
}

Schedule parse_rule(const std::string& text, std::int64_t total_steps, const std::string& place,
                    const std::vector<Curve>& curves) {
  const std::vector<std::string> parts = split_at_commas(text);
  const Curve& curve = find_row(curves, parts.front(), place);
  Section rule;
  for (const KeySpec& key : window_keys()) rule.declare(key);
  for (const KeySpec& key : curve.keys) rule.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(rule, parts[i], place);
  try {
    return curve.make(rule, window_of(rule, total_steps));
  } catch (const ConfigError& error) {
    throw ConfigError(place + ": " + error.what());
  }
}

}  // namespace

const std::vector<Curve>& builtin_curves() {
  static const std::vector<Curve> curves = {constant_curve(), linear_curve(), step_curve(), multistep_curve(),
                                            cosine_curve()};
  return curves;
}

Schedule parse(const std::vector<std::string>& rules, std::int64_t total_steps, const std::string& origin,
               const std::vector<Curve>& curves) {
  std::vector<Schedule> factors;
  for (const std::string& rule : rules) {
    factors.push_back(parse_rule(rule, total_steps, origin + ": sched.rule '" + rule + "'", curves));
  }
  return [factors = std::move(factors)](std::int64_t step) {
    double product = 1.0;
    for (const Schedule& factor : factors) product *= factor(step);
    return product;
  };
}

KeySpecs sched_keys() {
  std::string names;
  for (const Curve& curve : builtin_curves()) names += (names.empty() ? "" : ", ") + curve.name;
  return {
      {.name = "sched.rule",
       .type = KeyType::texts,
       .default_value = "",
       .help = "a curve that multiplies the lr, such as cosine,begin=100,final_factor=0.1; several are multiplied (" +
               names + ")"}};
}

}  // namespace lockstep::schedule
