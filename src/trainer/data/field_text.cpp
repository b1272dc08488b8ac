// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/field_text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text/text.hpp"
#include "trainer/commands/table_text.hpp"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownNames = 12;
constexpr std::size_t kShownChannels = 100;  // rows of the table of statistics
constexpr double kHour = 3600;
constexpr double kDay = 24 * kHour;

/// "3 KiB".
std::string size_text(double bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return number_text(bytes, 4) + " " + kUnits[unit];
}

/// "a, b, c and 17 more".
std::string names_text(const std::vector<std::string>& names) {
  if (names.size() <= kShownNames) return joined(names);
  const std::vector<std::string> first(names.begin(), names.begin() + kShownNames);
  return joined(first) + " and " + std::to_string(names.size() - kShownNames) + " more";
}

/// "6 h", "1 month".
std::string duration_text(double seconds) {
  if (seconds >= 27 * kDay && seconds <= 31 * kDay) return "1 month";
  if (seconds >= 365 * kDay && seconds <= 366 * kDay) return "1 year";
  if (seconds >= kDay) return number_text(seconds / kDay, 6) + " d";
  if (seconds >= kHour) return number_text(seconds / kHour, 6) + " h";
  return seconds >= 60 ? number_text(seconds / 60, 6) + " min" : number_text(seconds, 6) + " s";
}

/// "scale_factor 0.5, add_offset 10, gaps -32767"; "" = the stored numbers are the values.
std::string packing_text(const arrays::Packing& packing) {
  std::vector<std::string> parts;
  if (packing.is_scaled) {
    parts.push_back("scale_factor " + number_text(packing.scale, 6));
    parts.push_back("add_offset " + number_text(packing.offset, 6));
  }
  std::vector<std::string> gaps;
  const auto add_gap = [&gaps](const std::string& gap) {
    if (std::ranges::find(gaps, gap) == gaps.end()) gaps.push_back(gap);
  };
  for (const double gap : packing.gaps) add_gap(number_text(gap, 8));
  for (const std::int64_t gap : packing.integer_gaps) add_gap(std::to_string(gap));
  if (!gaps.empty()) parts.push_back("gaps are " + joined(gaps, " or "));
  if (packing.has_range) {
    parts.push_back("valid_range " + number_text(packing.lowest, 6) + " to " + number_text(packing.highest, 6));
  }
  return joined(parts);
}

std::string role_of(const FieldArray& array) {
  if (array.is_input && array.is_target) return "input and target";
  return array.is_input ? "input" : "target";
}

/// The names of stored axes with sizes and units, and with the fixed position if there is one.
std::vector<std::string> axes_of(const FieldArray& array) {
  const data::FieldVariable& variable = array.variable;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < variable.info.shape.size(); ++i) {
    std::string text = data::axis_name(variable.info, variable.axes, i) + " " + std::to_string(variable.info.shape[i]);
    if (!array.axis_units[i].empty()) text += " (" + array.axis_units[i] + ")";
    if (variable.axes.fixed[i] >= 0) text += " at index " + std::to_string(variable.axes.fixed[i]);
    names.push_back(text);
  }
  return names;
}

std::string array_title(const FieldArray& array) {
  const data::FieldVariable& variable = array.variable;
  std::string name = variable.info.path.empty() ? array.file : variable.info.path;
  if (!variable.groups.empty()) name += " and " + std::to_string(variable.groups.size() - 1) + " other groups";
  return name + ": " + arrays::name_of(variable.info.type) + " " + shape_text(variable.info.shape) + ", " +
         role_of(array);
}

std::string array_text(const FieldArray& array) {
  const data::FieldVariable& variable = array.variable;
  std::string text = array_title(array);
  const auto add = [&text](const std::string& name, const std::string& value) {
    if (!value.empty()) text += "\n  " + name + std::string(10 - name.size(), ' ') + value;
  };
  add("axes", joined(axes_of(array)));
  add("layout", variable.axes.letters + " by " + variable.layout_rule);
  add("channels", names_text(variable.names) + (variable.units.empty() ? "" : " (" + variable.units + ")"));
  add("packing", packing_text(variable.packing) + (variable.group_packings.empty() ? "" : " in the first group"));
  add("storage", storage_text(array.storage));
  return text;
}

std::string split_table(const FieldSurvey& survey) {
  std::vector<std::vector<std::string>> rows = {{"split"}, {"files"},   {"files too short"},        {"trajectories"},
                                                {"steps"}, {"windows"}, {"windows at gaps of time"}};
  for (const FieldSplit& split : survey.splits) {
    const std::vector<std::string> column = {split.name,
                                             std::to_string(split.files),
                                             std::to_string(split.too_short.size()),
                                             std::to_string(split.trajectories),
                                             std::to_string(split.steps),
                                             std::to_string(split.windows),
                                             std::to_string(split.left_at_gaps)};
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(column[i]);
  }
  return table_text(rows);
}

std::string window_text(const FieldSurvey& survey) {
  const data::WindowRule& rule = survey.rule;
  std::string text = "window: " + std::to_string(rule.steps_in) + " steps in, " + std::to_string(rule.steps_out) +
                     " steps out, stride " + std::to_string(rule.stride) + ", lead " + std::to_string(rule.lead) +
                     "; " + std::to_string(rule.span() + 1) + " stored steps from the first to the last\n";
  text += "sample: input " + shape_text(survey.input_shape);
  if (!survey.target_shape.empty()) text += ", target " + shape_text(survey.target_shape);
  return text + ", " + size_text(survey.sample_bytes) + " in the files\n" +
         "input channels: " + names_text(survey.inputs);
}

std::string space_text(const FieldSurvey& survey) {
  std::string text;
  for (const data::SpaceAxis& axis : survey.space) {
    text += "\n" + axis.name + ": " + std::to_string(axis.count()) + " points";
    if (axis.count() != axis.size) text += " of " + std::to_string(axis.size);
    if (axis.coordinates.empty()) continue;
    text += ", " + number_text(axis.coordinates.front(), 6) + " to " + number_text(axis.coordinates.back(), 6);
    if (!axis.unit.empty()) text += " " + axis.unit;
  }
  return text;
}

std::string time_text(const FieldTimes& times) {
  std::string text = "\ntime: " + times.first + " to " + times.last;
  if (times.step > 0) text += ", usual step " + duration_text(times.step);
  text += ", " + std::to_string(times.gaps) + (times.gaps == 1 ? " gap" : " gaps");
  return times.first_gap.empty() ? text : text + ", first after " + times.first_gap;
}

std::string chunk_text(const FieldSurvey& survey) {
  if (survey.chunks.used == 0) return "";
  return "\nchunks: a sample needs chunks of " + size_text(survey.chunks.unpacked) + " and uses " +
         size_text(survey.chunks.used) + " of them (factor " + number_text(survey.chunks.factor(), 3) +
         "); all chunks have " + size_text(survey.chunks.all);
}

// ---- Statistics.

/// The statistics with gaps, where these are known.
Json statistics_of(const FieldReport& report) {
  if (report.statistics.empty()) return nullptr;
  Json statistics = Json::parse(report.statistics);
  for (Json& channel : statistics["channels"]) {
    if (!report.are_counted) continue;
    channel["gaps"] =
        report.survey.values_per_channel - static_cast<std::int64_t>(channel["values"]["count"].get<double>());
  }
  statistics["origin"] = report.origin;
  return statistics;
}

std::string statistics_text(const FieldReport& report) {
  const Json statistics = statistics_of(report);
  if (statistics.is_null()) {
    return "statistics are not known yet; --statistics FILE computes them and writes them for data.statistics";
  }
  std::vector<std::vector<std::string>> rows = {{"channel", "mean", "std", "min", "max", "gaps"}};
  const auto number = [](const Json& value) { return value.is_null() ? "-" : number_text(value.get<double>(), 6); };
  for (const Json& channel : statistics["channels"]) {
    if (rows.size() > kShownChannels) break;
    const Json& values = channel["values"];
    rows.push_back({channel["channel"].get<std::string>(), number(values["mean"]), number(values["std"]),
                    number(values["min"]), number(values["max"]),
                    channel.contains("gaps") ? std::to_string(channel["gaps"].get<std::int64_t>()) : "-"});
  }
  std::string text = "statistics of the training part (" + report.origin + ")\n" + table_text(rows);
  const std::size_t all = statistics["channels"].size();
  if (all > kShownChannels) text += "\n(" + std::to_string(all - kShownChannels) + " more channels)";
  return text;
}

// ---- JSON.

std::int64_t integer(double bytes) { return static_cast<std::int64_t>(bytes); }

Json json_of(const StorageFacts& storage) {
  Json json = {{"layout", storage.layout}, {"bytes", integer(storage.bytes)}};
  if (!storage.chunk.empty()) {
    json["chunk"] = storage.chunk;
    json["chunk_bytes"] = integer(storage.chunk_bytes);
    json["filters"] = storage.filters;
  }
  if (storage.stored) json["stored_bytes"] = integer(*storage.stored);
  return json;
}

Json json_of(const FieldArray& array) {
  const data::FieldVariable& variable = array.variable;
  Json axes = Json::array();
  for (std::size_t i = 0; i < variable.info.shape.size(); ++i) {
    axes.push_back({{"name", data::axis_name(variable.info, variable.axes, i)},
                    {"size", variable.info.shape[i]},
                    {"units", array.axis_units[i]},
                    {"letter", std::string(1, variable.axes.letters[i])}});
    if (variable.axes.fixed[i] >= 0) axes.back()["index"] = variable.axes.fixed[i];
  }
  Json json = {{"file", array.file},
               {"array", variable.info.path},
               {"type", arrays::name_of(variable.info.type)},
               {"is_input", array.is_input},
               {"is_target", array.is_target},
               {"axes", axes},
               {"layout", variable.axes.letters},
               {"layout_rule", variable.layout_rule},
               {"channels", variable.names},
               {"units", variable.units},
               {"storage", json_of(array.storage)}};
  if (!variable.groups.empty()) json["groups"] = variable.groups.size();
  const arrays::Packing& packing = variable.packing;
  if (packing.is_scaled) json["packing"] = {{"scale", packing.scale}, {"offset", packing.offset}};
  if (!packing.gaps.empty()) json["gap_values"] = packing.gaps;
  if (!packing.integer_gaps.empty()) json["gap_values"] = packing.integer_gaps;
  if (packing.has_range) json["valid_range"] = {packing.lowest, packing.highest};
  return json;
}

Json json_of(const FieldSplit& split, const FieldSurvey& survey) {
  return {{"samples", split.windows},          {"sample_shape", survey.input_shape}, {"files", split.files},
          {"too_short", split.too_short},      {"trajectories", split.trajectories}, {"steps", split.steps},
          {"left_at_gaps", split.left_at_gaps}};
}

Json space_json(const FieldSurvey& survey) {
  Json space = Json::array();
  for (const data::SpaceAxis& axis : survey.space) {
    space.push_back(
        {{"name", axis.name}, {"points", axis.count()}, {"stored_points", axis.size}, {"units", axis.unit}});
    if (axis.coordinates.empty()) continue;
    space.back()["first"] = axis.coordinates.front();
    space.back()["last"] = axis.coordinates.back();
  }
  return space;
}

}  // namespace

std::string storage_text(const StorageFacts& storage) {
  std::string text = storage.layout;
  if (!storage.chunk.empty()) {
    text = "chunks " + shape_text(storage.chunk) + " of " + size_text(storage.chunk_bytes) + ", " +
           (storage.filters.empty() ? "no filters" : joined(storage.filters));
  }
  text += "; " + size_text(storage.bytes);
  if (!storage.stored || *storage.stored == storage.bytes) return text;
  text += ", " + size_text(*storage.stored) + " in the file";
  if (*storage.stored > 0) text += " (ratio " + number_text(storage.bytes / *storage.stored, 3) + ")";
  return text;
}

std::string storage_json(const StorageFacts& storage) { return json_of(storage).dump(); }

std::string fields_text(const FieldReport& report) {
  const FieldSurvey& survey = report.survey;
  std::string text = "data.name = fields\n\n" + split_table(survey) + "\n\n" + window_text(survey);
  text += space_text(survey);
  if (survey.times) text += time_text(*survey.times);
  text += chunk_text(survey) + "\n";
  for (const FieldArray& array : survey.arrays) text += "\n" + array_text(array);
  text += "\n\n" + statistics_text(report);
  for (const std::string& warning : survey.warnings) text += "\nremark: " + warning;
  return text;
}

std::string fields_json(const FieldReport& report) {
  const FieldSurvey& survey = report.survey;
  const data::WindowRule& rule = survey.rule;
  Json json = {{"source", "fields"}, {"splits", Json::object()}};
  for (const FieldSplit& split : survey.splits) json["splits"][split.name] = json_of(split, survey);
  json["window"] = {{"steps_in", rule.steps_in},
                    {"steps_out", rule.steps_out},
                    {"stride", rule.stride},
                    {"lead", rule.lead},
                    {"stored_steps", rule.span() + 1}};
  json["target_shape"] = survey.target_shape;
  json["inputs"] = survey.inputs;
  json["arrays"] = Json::array();
  for (const FieldArray& array : survey.arrays) json["arrays"].push_back(json_of(array));
  json["space"] = space_json(survey);
  if (survey.times) {
    json["time"] = {{"first", survey.times->first},
                    {"last", survey.times->last},
                    {"step_seconds", survey.times->step},
                    {"gaps", survey.times->gaps}};
    if (survey.times->gaps > 0) json["time"]["first_gap_after"] = survey.times->first_gap;
  }
  json["sample_bytes"] = integer(survey.sample_bytes);
  if (survey.chunks.used > 0) {
    json["chunks"] = {{"unpacked_bytes_of_sample", survey.chunks.unpacked},
                      {"used_bytes_of_sample", integer(survey.chunks.used)},
                      {"factor", survey.chunks.factor()},
                      {"all_bytes", integer(survey.chunks.all)}};
  }
  json["statistics"] = statistics_of(report);
  json["remarks"] = survey.warnings;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::trainer
