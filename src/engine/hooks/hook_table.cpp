// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/option_list.hpp"
#include "core/table.hpp"
#include "engine/hooks/hook_rows.hpp"

namespace lockstep::engine {

namespace {

struct Band {
  std::string name;
  Priority priority;
};

const std::vector<Band>& bands() {
  static const std::vector<Band> rows = {
      {"highest", Priority::highest}, {"very_high", Priority::very_high},
      {"high", Priority::high},       {"above_normal", Priority::above_normal},
      {"normal", Priority::normal},   {"below_normal", Priority::below_normal},
      {"low", Priority::low},         {"very_low", Priority::very_low},
      {"lowest", Priority::lowest},
  };
  return rows;
}

constexpr double kMaxReal = 1e300;

KeySpec priority_key(const HookRow& row) {
  const auto band =
      std::find_if(bands().begin(), bands().end(), [&row](const Band& of) { return of.priority == row.priority; });
  KeySpec key = keys::text("priority", "",
                           "its place among the hooks: highest, very_high, high, above_normal, normal, "
                           "below_normal, low, very_low, lowest, or 0 to 100");
  key.default_value = band == bands().end() ? std::to_string(static_cast<int>(row.priority)) : band->name;
  return key;
}

std::pair<Priority, std::unique_ptr<Hook>> make_hook(const std::vector<std::string>& parts, const HookRow& row,
                                                     const HookContext& context, const std::string& place) {
  Section options;
  options.declare(priority_key(row));
  for (const KeySpec& key : row.keys) options.declare(key);
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(options, parts[i], place);
  const std::string in_row = place + ": " + row.name;
  const Priority priority = priority_of(options.text("priority"), in_row);
  try {
    return {priority, row.make(options, context)};
  } catch (const ConfigError& error) {
    throw ConfigError(in_row + ": " + error.what());
  }
}

}  // namespace

const std::vector<HookRow>& builtin_hooks() {
  static const std::vector<HookRow> rows = {
      {"early_stopping",
       "ends the run, as if it were done, when a metric of the evaluation does not improve any more",
       {keys::text("metric", "val/loss", "metric of the evaluation"),
        keys::choice("rule", "auto", "which of its values are better; auto: as its name tells",
                     {"auto", "less", "greater"}),
        keys::real("min_delta", "0", "by how much it must be better than the best one; 0: by anything", 0, kMaxReal),
        keys::integer("patience", "5", "evaluations in a row without that, after which the run ends", 1, kMaxSteps),
        keys::real("threshold", "nan", "the run ends, too, when the metric is better than this", -kMaxReal, kMaxReal),
        keys::boolean("check_finite", "true", "the run ends when the metric is NaN or infinite"),
        keys::boolean("strict", "true", "an evaluation without the metric is an error; false: a warning, once")},
       Priority::lowest,
       early_stopping_hook},
      {"precise_bn",
       "before evaluations, gives batch norm layers the statistics of many samples under the present weights",
       {keys::integer("samples", "8192",
                      "training samples to look at, over all ranks; by default no more than there are", 1, kMaxSteps),
        keys::integer("every_epochs", "1",
                      "epochs between such passes, and at the run's end; 0: before every evaluation", 0, kMaxSteps)},
       Priority::above_normal,
       precise_bn_hook},
      {"sync_buffers",
       "averages buffers (running statistics) over ranks after each epoch and before evaluations",
       {},
       Priority::normal,
       sync_buffers_hook},
      {"freeze",
       "parameters that are not updated at first; their blocks are in evaluation mode meanwhile",
       {keys::text("names", "", "blocks or parameters, several by slashes; * stands for any text without a dot"),
        keys::integer("until", "0", "steps before the first one that updates them; 0: none does", 0, kMaxSteps)},
       Priority::very_high,
       freeze_hook},
      {"memory",
       "memory of rank 0's process and GPU in MB as memory/..., and the most of all ranks when the run ends",
       {keys::integer("interval", "20", "steps between measurements", 1, kMaxSteps)},
       Priority::normal,
       memory_hook},
      {"profiler",
       "writes run.dir/trace.json, for chrome://tracing or Perfetto: steps, their sections and operators by rank",
       {keys::integer("from_step", "10", "steps before the first one that is shown", 0, kMaxSteps),
        keys::integer("steps", "3", "steps that are shown", 1, 10000),
        keys::integers("ranks", "", "which ranks; empty: all", 0, 1e6)},
       Priority::highest,
       profiler_hook},
      {"parameter_statistics",
       "norm, mean, deviation, largest magnitude and zeros of parameters, and of gradients before clipping",
       {keys::integer("interval", "100", "steps between measurements", 1, kMaxSteps),
        keys::choice("by", "all", "one line for all of them, or one for each parameter", {"all", "parameter"}),
        keys::boolean("gradients", "false", "of gradients, too, which are then gathered in every step"),
        keys::integer("bins", "0", "of a histogram for each parameter; 0: none", 0, 10000)},
       Priority::normal,
       parameter_statistics_hook},
      {"nan_output",
       "ends the run when an output of the model is not finite; says where, and keeps it in run.dir",
       {keys::boolean("dump", "true", "write input, target and output of the batch to a file")},
       Priority::normal,
       nan_output_hook},
      {"run_time",
       "says at the end how long steps took, and how much of the time went to hooks and data",
       {keys::integer("warmup", "3", "first steps that are left out", 0, kMaxSteps)},
       Priority::highest,
       run_time_hook},
  };
  return rows;
}

std::vector<std::pair<Priority, std::unique_ptr<Hook>>> make_hooks(const Sections& run,
                                                                   const std::vector<HookRow>& rows) {
  const Section& train = run.at("train");
  const std::string place = train.cite("hooks");
  std::vector<std::pair<Priority, std::unique_ptr<Hook>>> hooks;
  std::map<std::string, int> counts;
  for (const std::string& written : train.texts("hooks")) {
    const std::vector<std::string> parts = split_list(written, ',');
    const HookRow& row = find_row(rows, parts.front(), place);
    const int number = ++counts[row.name];
    const HookContext context{run, number == 1 ? row.name : row.name + "#" + std::to_string(number)};
    hooks.push_back(make_hook(parts, row, context, place));
  }
  return hooks;
}

Priority priority_of(const std::string& written, const std::string& place) {
  std::string name = written;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const KeySpec number = keys::integer("priority", "50", "", 0, 100);
  if (!name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0 && fault_in(number, name).empty()) {
    return static_cast<Priority>(std::stoi(name));
  }
  return find_row(bands(), name, place + ": priority").priority;
}

KeySpec hooks_key(const std::vector<HookRow>& rows) {
  KeySpec key =
      keys::texts("train.hooks", "", "NAME,key=value: what else happens in training, beside what other keys ask for");
  for (const HookRow& row : rows) {
    KeySpec part = keys::text(row.name, "", row.help);
    part.parts = row.keys;
    part.parts.push_back(priority_key(row));
    key.parts.push_back(std::move(part));
  }
  return key;
}

}  // namespace lockstep::engine
