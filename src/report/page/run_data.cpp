// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/run_data.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "core/text/text.hpp"
#include "report/files/run_files.hpp"

namespace lockstep::report {

namespace {

using Json = nlohmann::ordered_json;

std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& word = value.get_ref<const std::string&>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return kInfinity;
  return word == "-Infinity" ? std::optional(-kInfinity) : std::nullopt;
}

void add_point(std::vector<plot::Series>& curves, const std::string& key, plot::Point point) {
  auto found = std::find_if(curves.begin(), curves.end(), [&key](const auto& curve) { return curve.name == key; });
  if (found == curves.end()) found = curves.insert(curves.end(), {.name = key, .points = {}});
  found->points.push_back(point);
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// The cells of a record about a recovery; none = it is another record.
std::optional<std::vector<std::string>> recovery_in(const Json& record) {
  if (!record.contains("heal/cause")) return std::nullopt;
  const auto text = [&record](const char* name) { return record.contains(name) ? text_of(record[name]) : ""; };
  const bool is_in_place = text("heal/rung") == "1";
  return std::vector<std::string>{text("step"), text("heal/cause"),
                                  is_in_place ? "the other ranks continued in place" : "the job was started again",
                                  fmt::format("{:.3f}", number_in(record.value("heal/seconds", Json(0))).value_or(0)),
                                  text("heal/steps_lost")};
}

/// Fills in the curves and the recoveries.
void read_metrics(const std::string& path, PageData& run) {
  const std::optional<std::string> text = read_text(path);
  if (!text) throw ConfigError(path + " is missing: a report needs the folder of a training run");
  std::vector<plot::Series>& curves = run.curves;
  std::int64_t line_number = 0;
  for (const std::string& line : lines_in(whole_lines(*text))) {
    ++line_number;
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object())
      throw DataError(path, "line " + std::to_string(line_number) + " is damaged: it is not a JSON object");
    if (auto recovery = recovery_in(object)) {
      run.recoveries.push_back(*std::move(recovery));
      continue;
    }
    const auto step = object.find("step");
    if (step == object.end() || !step->is_number()) continue;
    for (const auto& [key, value] : object.items()) {
      const std::optional<double> number = number_in(value);
      if (number && key != "step") add_point(curves, key, {step->get<double>(), *number});
    }
  }
  if (curves.empty()) throw DataError(path, "contains no metrics: the run has not reached the first line of metrics");
}

/// The file's object, or null where there is no file or it is none: such files are shown as far as they can be read.
Json read_object(const std::string& path) {
  const Json object = Json::parse(read_text(path).value_or(""), nullptr, /*allow_exceptions=*/false);
  return object.is_object() ? object : Json::object();
}

PageRows read_rows(const std::string& path) {
  PageRows rows;
  const Json object = read_object(path);  // items() does not keep it
  for (const auto& [key, value] : object.items()) rows.push_back({key, text_of(value)});
  return rows;
}

PageRows read_status(const std::string& folder) {
  PageRows status = read_rows(folder + "/STATUS.json");
  for (auto& row : read_rows(folder + "/failure.json")) {
    if (row[0] == "class" || row[0] == "rank" || row[0] == "verdict") status.push_back(std::move(row));
  }
  return status;
}

std::vector<Setting> read_configuration(const std::string& path) {
  std::vector<Setting> settings;
  const Json object = read_object(path);
  for (const auto& [name, entry] : object.items()) {
    if (!entry.is_object() || !entry.contains("value") || !entry.contains("origin")) continue;
    settings.push_back({name, text_of(entry["value"]), text_of(entry["origin"])});
  }
  return settings;
}

}  // namespace

const plot::Series* PageData::curve(const std::string& key) const {
  const auto found = std::find_if(curves.begin(), curves.end(), [&key](const auto& c) { return c.name == key; });
  return found == curves.end() ? nullptr : &*found;
}

PageData read_run(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw ConfigError(folder + " is not a folder; give the folder of a run");
  PageData run;
  const fs::path whole = fs::weakly_canonical(folder, ignored);
  run.name = whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
  read_metrics(folder + "/metrics.jsonl", run);
  run.status = read_status(folder);
  run.environment = read_rows(folder + "/env.json");
  run.configuration = read_configuration(folder + "/config.resolved.json");
  run.command = read_text(folder + "/argv.txt").value_or("");
  run.command.erase(run.command.find_last_not_of('\n') + 1);
  run.replaced = lines_in(read_text(folder + "/bad_samples.txt").value_or(""));
  run.step_times = read_step_times(folder);
  run.artifacts = read_artifacts(folder);
  return run;
}

}  // namespace lockstep::report
