// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

#include <algorithm>
#include <cctype>
#include <map>

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

KeySpec priority_key(const HookRow& row) {
  const auto band = std::ranges::find(bands(), row.priority, &Band::priority);
  KeySpec key = common_hook_key();
  key.default_value = band == bands().end() ? std::to_string(static_cast<int>(row.priority)) : band->name;
  return key;
}

PrioritizedHook make_hook(const std::vector<std::string>& parts, const HookRow& row, const HookContext& context,
                          const std::string& place) {
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

KeySpec every_key(const std::string& default_value, const std::string& actions) {
  return keys::text(
      "every", default_value,
      "Steps (100), epochs (1epochs) or end: the time between " + actions + ". Joined by +; never = none");
}

KeySpec renamed_every_key(const std::string& default_value, const std::string& actions, const std::string& old_name) {
  return keys::renamed(every_key(default_value, actions), old_name);
}

Every every_of(const Section& options) {
  return Every::parse(options.text("every"), "every", {.times = false, .never = true});
}

KeySpec common_hook_key() {
  return keys::text("priority", "",
                    "Priority of the hook: highest, very_high, high, above_normal, normal, below_normal, low, "
                    "very_low, lowest, or 0 to 100");
}

const std::vector<HookRow>& builtin_hooks() {
  static const std::vector<HookRow> rows = {early_stopping_row(), precise_bn_row(),  sync_buffers_row(),
                                            memory_row(),         profiler_row(),    parameter_statistics_row(),
                                            nan_output_row(),     empty_cache_row(), run_time_row()};
  return rows;
}

std::vector<PrioritizedHook> make_hooks(const Sections& run, const std::vector<HookRow>& rows,
                                        const std::string& name) {
  const Section& train = run.at("train");
  const std::string place = train.cite("hooks");
  std::vector<PrioritizedHook> hooks;
  std::map<std::string, int> counts;
  for (const std::string& written : train.texts("hooks")) {
    const std::vector<std::string> parts = entry_parts(written);
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
