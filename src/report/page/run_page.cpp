// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/run_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "plot/markup.hpp"
#include "report/page/curve_charts.hpp"
#include "report/page/evaluation_section.hpp"
#include "report/page/html.hpp"
#include "report/page/run_data.hpp"
#include "report/page/step_section.hpp"

namespace lockstep::report {

namespace {

using plot::escaped;
using Lines = std::vector<std::vector<std::string>>;

std::string brief(double value) {
  return std::abs(value) >= 1e4 && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
}

std::string last_of(const plot::Series* curve) { return curve == nullptr ? "-" : brief(curve->points.back().y); }

Lines table_of(const PageRows& rows) {
  Lines table;
  for (const auto& [name, value] : rows) table.push_back({name, value});
  return table;
}

Lines last_numbers(const PageData& run) {
  Lines table;
  for (const plot::Series& curve : run.curves) {
    double low = curve.points.front().y;
    double high = low;
    for (const plot::Point& point : curve.points) {
      low = std::fmin(low, point.y);
      high = std::fmax(high, point.y);
    }
    table.push_back({curve.name, brief(curve.points.back().y), brief(low), brief(high)});
  }
  return table;
}

std::string configuration_section(const PageData& run) {
  Lines chosen;
  Lines defaults;
  for (const Setting& setting : run.configuration) {
    if (setting.origin == "default") {
      defaults.push_back({setting.name, setting.value});
    } else {
      chosen.push_back({setting.name, setting.value, setting.origin});
    }
  }
  const std::string command = run.command.empty() ? "" : "<p><code>" + escaped(run.command) + "</code></p>\n";
  return html_section("Configuration", command + html_table({"key", "value", "from"}, chosen) +
                                           html_details("keys at their defaults", html_table({}, defaults)));
}

std::string replaced_section(const PageData& run) {
  if (run.replaced.empty()) return "";
  Lines names;
  for (const std::string& name : run.replaced) names.push_back({name});
  return html_section("Replaced samples",
                      "<p>" + std::to_string(run.replaced.size()) +
                          " samples could not be read and were replaced by others. The log states the reasons.</p>\n" +
                          html_details("their names", html_table({}, names)));
}

/// Folders with the same name are distinguished by letters.
std::vector<std::string> names_of(const PageData& one, const PageData& other) {
  if (one.name != other.name) return {one.name, other.name};
  return {one.name + " (A)", other.name + " (B)"};
}

Lines compared_numbers(const PageData& one, const PageData& other) {
  Lines table;
  for (const plot::Series& curve : one.curves) {
    table.push_back({curve.name, last_of(&curve), last_of(other.curve(curve.name))});
  }
  for (const plot::Series& curve : other.curves) {
    if (one.curve(curve.name) == nullptr) table.push_back({curve.name, "-", last_of(&curve)});
  }
  return table;
}

std::string value_in(const PageData& run, const std::string& key) {
  const auto found = std::find_if(run.configuration.begin(), run.configuration.end(),
                                  [&key](const Setting& setting) { return setting.name == key; });
  return found == run.configuration.end() ? "-" : found->value;
}

Lines different_settings(const PageData& one, const PageData& other) {
  Lines table;
  const auto add = [&](const std::string& key) {
    const std::string left = value_in(one, key);
    const std::string right = value_in(other, key);
    if (left != right) table.push_back({key, left, right});
  };
  for (const Setting& setting : one.configuration) add(setting.name);
  for (const Setting& setting : other.configuration) {
    if (value_in(one, setting.name) == "-") add(setting.name);
  }
  return table;
}

}  // namespace

std::string run_page(const std::string& folder) {
  const PageData run = read_run(folder);
  std::string body = html_section("Outcome", html_table({}, table_of(run.status)));
  body += html_section("Curves", html_lines(curve_charts({&run}, {run.name})));
  body += tables_section(run.artifacts.tables) + pictures_section(run.artifacts.pictures);
  body += html_section("Numbers", html_table({"metric", "last", "least", "largest"}, last_numbers(run)));
  body += step_section(run) + replaced_section(run);
  body += configuration_section(run);
  body += html_section("Environment",
                       html_details("host, libraries and devices", html_table({}, table_of(run.environment))));
  return html_page("Run " + run.name, body);
}

std::string comparison_page(const std::string& folder, const std::string& other_folder) {
  const PageData one = read_run(folder);
  const PageData other = read_run(other_folder);
  const std::vector<std::string> names = names_of(one, other);
  std::string body = "<p>" + escaped(names[0] + ": " + folder) + "<br/>" + escaped(names[1] + ": " + other_folder) +
                     "</p>\n" + html_section("Curves", html_lines(curve_charts({&one, &other}, names)));
  body += html_section("Times", html_lines(time_charts({&one, &other}, names)));
  body += html_section("Last values", html_table({"metric", names[0], names[1]}, compared_numbers(one, other)));
  body += html_section("Settings that differ", html_table({"key", names[0], names[1]}, different_settings(one, other)));
  return html_page("Runs " + names[0] + " and " + names[1], body);
}

}  // namespace lockstep::report
