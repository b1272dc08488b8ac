// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/text/option_list.hpp"
#include "core/text/table.hpp"
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
  const auto band = std::find_if(bands().begin(), bands().end(),
                                 [&row](const Band& each_band) { return each_band.priority == row.priority; });
  KeySpec key = common_hook_key();
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
    std::unique_ptr<Hook> hook = row.make(options, context);
    if (hook == nullptr) throw ConfigError("its function `make` returned nothing");
    return {priority, std::move(hook)};
  } catch (const ConfigError& error) {
    throw ConfigError(in_row + ": " + error.what());
  }
}

}  // namespace

KeySpec common_hook_key() {
  return keys::text("priority", "",
                    "Priority of the hook: highest, very_high, high, above_normal, normal, below_normal, low, "
                    "very_low, lowest, or 0 to 100");
}

const std::vector<HookRow>& builtin_hooks() {
  static const std::vector<HookRow> rows = {
      {"early_stopping",
       "Ends the run normally when a metric of the evaluation stops improving",
       {keys::text("metric", "val/loss", "Name of an evaluation metric"),
        keys::choice("rule", "auto",
                     "Whether lower or higher values are better. auto = derived from the name of the metric",
                     {"auto", "less", "greater"}),
        keys::real("min_delta", "0", "Minimum change that counts as an improvement. 0 = any change", 0, kMaxReal),
        keys::integer("patience", "5", "Number of consecutive evaluations without improvement after which the run ends",
                      1, kMaxSteps),
        keys::real("threshold", "nan", "The run also ends when the metric is better than this value", -kMaxReal,
                   kMaxReal),
        keys::boolean("check_finite", "true", "End the run when the metric is NaN or infinite"),
        keys::boolean("strict", "true",
                      "An evaluation without the metric is an error. If false, it is reported once as a warning")},
       Priority::lowest,
       early_stopping_hook},
      {"precise_bn",
       "Before evaluations, recomputes the running statistics of batch norm layers with the current weights",
       {keys::integer("samples", "8192",
                      "Number of training samples over all ranks, limited by the size of the data set", 1, kMaxSteps),
        keys::integer(
            "every_epochs", "1",
            "Epochs between recomputations; the end of the run is always included. 0 = before every evaluation", 0,
            kMaxSteps)},
       Priority::above_normal,
       precise_bn_hook},
      {"sync_buffers",
       "Averages buffers (running statistics) over all ranks after each epoch and before each evaluation",
       {},
       Priority::normal,
       sync_buffers_hook},
      {"memory",
       "Logs the memory of rank 0 (process and GPU, in MB) as memory/..., and the maximum over all ranks at the end of "
       "the run",
       {keys::integer("interval", "20", "Steps between measurements", 1, kMaxSteps)},
       Priority::normal,
       memory_hook},
      {"profiler",
       "Writes run.dir/trace.json for chrome://tracing or Perfetto: steps, their sections, operators, and the kernels "
       "and copies of a GPU, for each rank",
       {keys::integer("from_step", "10", "Number of steps before the first traced step", 0, kMaxSteps),
        keys::integer("steps", "3", "Number of traced steps", 1, 10000),
        keys::integers("ranks", "", "Traced ranks. If empty, all ranks are traced", 0, 1e6)},
       Priority::highest,
       profiler_hook},
      {"parameter_statistics",
       "Logs norm, mean, standard deviation, maximum magnitude and number of zeros of parameters, and of gradients "
       "before clipping",
       {keys::integer("interval", "100", "Steps between measurements", 1, kMaxSteps),
        keys::choice("by", "all", "Statistics of all parameters together, or of each parameter", {"all", "parameter"}),
        keys::boolean("gradients", "false", "Also measure gradients, which requires gathering them in every step"),
        keys::integer("bins", "0", "Bins of the histogram of each parameter. 0 = no histograms", 0, 10000)},
       Priority::normal,
       parameter_statistics_hook},
      {"nan_output",
       "Ends the run when an output of the model is not finite, reports its position, and writes the batch to run.dir",
       {keys::boolean("dump", "true", "Write input, target and output of the batch to a file")},
       Priority::normal,
       nan_output_hook},
      {"empty_cache",
       "Returns GPU memory that LibTorch keeps for reuse, for example to another process. The next steps allocate it "
       "again, which takes time",
       {keys::integer("interval", "0", "Steps between returns. 0 = not after steps", 0, kMaxSteps),
        keys::boolean("epochs", "true", "Return memory after each epoch"),
        keys::boolean("evaluations", "true", "Return memory after each evaluation")},
       Priority::normal,
       empty_cache_hook},
      {"run_time",
       "Reports at the end of the run the time per step and the share of time spent in hooks and in waiting for data",
       {keys::integer("warmup", "3", "Number of first steps that are excluded", 0, kMaxSteps)},
       Priority::highest,
       run_time_hook},
  };
  return rows;
}

std::vector<std::pair<Priority, std::unique_ptr<Hook>>> make_hooks(const Sections& run,
                                                                   const std::vector<HookRow>& rows,
                                                                   const std::string& name) {
  const Section& train = run.at("train");
  const std::string place = train.cite("hooks");
  std::vector<std::pair<Priority, std::unique_ptr<Hook>>> hooks;
  std::map<std::string, int> counts;
  for (const std::string& written : train.texts("hooks")) {
    const std::vector<std::string> parts = split_list(written, ',');
    if (!name.empty() && parts.front() != name) continue;
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
  KeySpec key = keys::texts("train.hooks", "", "NAME,option=value: an additional hook");
  for (const HookRow& row : rows) {
    KeySpec part = keys::text(row.name, "", row.help);
    part.parts = row.keys;
    part.parts.push_back(priority_key(row));
    key.parts.push_back(std::move(part));
  }
  return key;
}

}  // namespace lockstep::engine
