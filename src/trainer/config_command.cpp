// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <set>

#include "trainer/commands/commands.hpp"
#include "trainer/commands/table_text.hpp"

namespace lockstep::trainer {

namespace {

using Row = std::vector<std::string>;

/// The value of an option of a group; "" where the optimizer of the group does not have it.
std::string shown_value(const engine::RunPlan::PlannedGroup& group, const std::string& option) {
  const auto found = group.options.find(option);
  return found == group.options.end() ? "" : brief(found->second);
}

/// lr, weight_decay, and every other option that is not the same in all groups.
std::vector<std::string> shown_options(const std::vector<engine::RunPlan::PlannedGroup>& groups) {
  std::vector<std::string> options = {"lr", "weight_decay"};
  std::set<std::string> all;
  for (const engine::RunPlan::PlannedGroup& group : groups) {
    for (const auto& [option, value] : group.options) all.insert(option);
  }
  for (const std::string& option : all) {
    const bool differs = std::any_of(groups.begin(), groups.end(), [&](const engine::RunPlan::PlannedGroup& group) {
      const auto found = group.options.find(option);
      const auto first = groups.front().options.find(option);
      if (found == group.options.end() || first == groups.front().options.end()) return true;
      return found->second != first->second;
    });
    const bool is_new = std::find(options.begin(), options.end(), option) == options.end();
    if (differs && is_new) options.push_back(option);
  }
  return options;
}

/// A row for each group, and with `is_verbose` one for each of its parameters below it.
std::string groups_table(const std::vector<engine::RunPlan::PlannedGroup>& groups, bool is_verbose) {
  const std::vector<std::string> options = shown_options(groups);
  Row heading = {"group"};
  heading.insert(heading.end(), options.begin(), options.end());
  heading.insert(heading.end(), {"tensors", "elements"});
  std::vector<Row> rows = {heading};
  for (const engine::RunPlan::PlannedGroup& group : groups) {
    std::int64_t elements = 0;
    for (const auto& parameter : group.parameters) elements += parameter.count;
    Row row = {group.name};
    for (const std::string& option : options) row.push_back(shown_value(group, option));
    row.insert(row.end(), {std::to_string(group.parameters.size()), std::to_string(elements)});
    rows.push_back(row);
    if (!is_verbose) continue;
    for (const auto& parameter : group.parameters) {
      Row of_parameter(heading.size());
      of_parameter.front() = "  " + parameter.name;
      of_parameter.back() = std::to_string(parameter.count);
      rows.push_back(of_parameter);
    }
  }
  return table_text(rows);
}

}  // namespace

ExitCode show_config(const CommandJob& job, const config::Invocation& invocation) {
  const bool is_verbose = invocation.options.contains("verbose");
  if (!invocation.options.contains("groups")) {
    job.world.all_or_throw([&] {
      if (is_verbose) throw ConfigError("command line: --verbose requires --groups");
      engine::check_settings(invocation.config.sections(), job.registry);
    });
    print_result(job.world, invocation.config.explain());
    return ExitCode::done;
  }
  const engine::RunPlan plan = engine::plan(job.world, invocation.config.sections(), job.registry, 2);
  print_result(job.world, groups_table(plan.groups, is_verbose));
  for (const std::string& remark : plan.remarks) print_result(job.world, remark);
  return ExitCode::done;
}

}  // namespace lockstep::trainer
