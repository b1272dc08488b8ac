// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_output.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "core/text/text.hpp"
#include "data/fields/field_axes.hpp"
#include "data/source/roles.hpp"

namespace lockstep::data {

namespace {

/// Attributes that describe the storage of an array, or refer to others that the output does not have.
constexpr std::array<std::string_view, 24> kStorageAttributes = {
    "CLASS",          "NAME",          "DIMENSION_LIST",      "DIMENSION_LABELS",
    "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_FillValue",
    "_Unsigned",      "missing_value", "scale_factor",        "add_offset",
    "valid_range",    "valid_min",     "valid_max",           "actual_range",
    "coordinates",    "bounds",        "grid_mapping",        "ancillary_variables",
    "cell_measures",  "time_varying",  "sample_varying",      "dim_varying"};

arrays::Attributes described_by(const arrays::Attributes& stored) {
  arrays::Attributes kept;
  for (const auto& [name, value] : stored) {
    if (std::ranges::find(kStorageAttributes, name) == kStorageAttributes.end()) kept.emplace(name, value);
  }
  return kept;
}

/// Whether the names of channels are only the name of their array and a number.
bool are_numbered(const FieldVariable& variable) {
  if (variable.names.size() < 2) return false;
  const std::string& first = variable.names.front();
  const std::string number = std::to_string(variable.channels.front());
  if (!first.ends_with(number)) return false;
  const std::string base = first.substr(0, first.size() - number.size());
  for (std::size_t i = 0; i < variable.names.size(); ++i) {
    if (variable.names[i] != base + std::to_string(variable.channels[i])) return false;
  }
  return true;
}

void add_variables(const FieldVariable& variable, FieldOutput& output) {
  const arrays::Attributes attributes = described_by(variable.info.attributes);
  if (are_numbered(variable)) {
    const std::string& first = variable.names.front();
    const std::size_t digits = std::to_string(variable.channels.front()).size();
    output.variables.push_back({.name = first.substr(0, first.size() - digits),
                                .channels = std::ssize(variable.names),
                                .has_channel_axis = true,
                                .attributes = attributes});
    return;
  }
  for (const std::string& name : variable.names) {
    output.variables.push_back({.name = name, .attributes = attributes});
  }
}

/// The array with the coordinates of an axis, by its name or by the conventions of The Well and PDEBench.
std::optional<arrays::ArrayInfo> coordinates_along(const arrays::ArrayFile& file, const FieldVariable& variable,
                                                   const std::string& axis) {
  for (const std::string& name : {axis, "dimensions/" + axis, axis + "-coordinate", "grid/" + axis}) {
    if (auto found = coordinate_array(file, variable.info.path, name)) return found;
  }
  return std::nullopt;
}

OutputAxis output_axis(const arrays::ArrayFile& file, const FieldVariable& variable, const SpaceAxis& axis) {
  OutputAxis output{.name = axis.name, .size = axis.count(), .coordinates = {}, .attributes = {}};
  const auto stored = coordinates_along(file, variable, axis.name);
  if (!stored || stored->shape.front() != axis.size) return output;
  const std::vector<double> all = coordinates_in(file, *stored);
  for (std::int64_t i = axis.part.begin; i < axis.part.end; i += axis.part.step) {
    output.coordinates.push_back(all[static_cast<std::size_t>(i)]);
  }
  const bool is_packed = stored->attributes.contains("scale_factor") || stored->attributes.contains("add_offset");
  const bool is_single = stored->type.kind == arrays::NumberKind::real && stored->type.bytes <= 4;
  output.is_double = is_packed || !is_single;
  output.attributes = described_by(stored->attributes);
  return output;
}

/// The file whose times are those of a pair: that of the targets, if it has times.
const FieldFile& timed_file(const FieldPair& pair) { return pair.targets.times.empty() ? pair.inputs : pair.targets; }

/// The attributes of the times of a file: at least `units`.
arrays::Attributes time_attributes_of(const FieldFile& file) {
  const auto opened = arrays::open_arrays(file.path);
  for (const FieldVariable& variable : file.variables) {
    if (!variable.axes.time) continue;
    const auto stored = time_array(*opened, variable);
    if (!stored) continue;
    arrays::Attributes attributes = described_by(stored->attributes);
    const std::string implied = implied_time_unit(*stored);
    if (!attributes.contains("units") && !implied.empty()) attributes["units"] = std::vector<std::string>{implied};
    if (attributes.contains("units")) return attributes;
  }
  return {};
}

std::string first_text(const arrays::Attributes& attributes, const std::string& name) {
  const std::vector<std::string> texts = arrays::texts_of(attributes, name);
  return texts.empty() ? "" : texts.front();
}

bool has_gap_after(const std::vector<bool>& gaps, std::size_t step) { return step < gaps.size() && gaps[step]; }

/// The common distance of times, without those over gaps; NaN = they have none.
double common_step(const std::vector<double>& times, const std::vector<bool>& gaps) {
  constexpr double kTolerance = 1e-6;
  double common = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (has_gap_after(gaps, i - 1)) continue;
    const double step = times[i] - times[i - 1];
    if (std::isnan(common)) common = step;
    if (std::fabs(step - common) > kTolerance * common) return std::numeric_limits<double>::quiet_NaN();
  }
  return common;
}

}  // namespace

std::int64_t FieldOutput::channels() const {
  std::int64_t count = 0;
  for (const OutputVariable& variable : variables) count += variable.channels;
  return count;
}

FieldOutput output_of(const FieldDescription& description, std::int64_t target_channels) {
  const FieldPair& first = description.pairs.front();
  FieldOutput output{.variables = {}, .space = {}, .has_classes = description.classes > 0, .time_attributes = {}};
  for (const FieldVariable& variable : first.targets.variables) add_variables(variable, output);
  const auto file = arrays::open_arrays(first.inputs.path);
  for (const SpaceAxis& axis : description.space) {
    output.space.push_back(output_axis(*file, first.inputs.variables.front(), axis));
  }
  const std::int64_t channels = output.channels();
  if (!output.has_classes) {
    output.steps = target_channels / channels;
    if (output.steps < 1 || output.steps * channels != target_channels) {
      throw DataError(first.targets.path, "has " + std::to_string(channels) +
                                              " channels of targets, but the model predicts " +
                                              std::to_string(target_channels) + "; use the variables of the training");
    }
  }
  const bool have_times =
      std::ranges::none_of(description.pairs, [](const FieldPair& pair) { return timed_file(pair).times.empty(); });
  if (!have_times) return output;
  output.time_attributes = time_attributes_of(timed_file(first));
  if (!output.has_times()) return output;
  output.time_unit = arrays::parse_time_unit(first_text(output.time_attributes, "units"),
                                             first_text(output.time_attributes, "calendar"));
  return output;
}

OutputTimes::OutputTimes(const FieldDescription& description, const FieldOutput& output)
    : starts_(description.pairs.size()), rule_(description.rule), unit_(output.time_unit) {
  rule_.steps_out = output.steps;
  for (const FieldSeries& series : description.series) {
    TimeSeries times;
    for (std::size_t i = 0; i < series.files.size(); ++i) {
      const std::vector<double>& more = timed_file(description.pairs[series.files[i]]).times;
      starts_[series.files[i]] = {.series = series_.size(), .begin = series.begins[i]};
      times.times.insert(times.times.end(), more.begin(), more.end());
    }
    times.step = common_step(times.times, series.gaps);
    times.gaps = series.gaps;
    series_.push_back(std::move(times));
  }
}

double OutputTimes::in_unit(double seconds) const { return (seconds - arrays::seconds_of(unit_, 0)) / unit_.seconds; }

std::int64_t OutputTimes::newest_step(const FieldPlace& place) const {
  return rule_.input_steps(starts_[place.file].begin + place.start).back();
}

double OutputTimes::reference(const FieldPlace& place) const {
  return in_unit(series_[starts_[place.file].series].times[static_cast<std::size_t>(newest_step(place))]);
}

std::vector<double> OutputTimes::valid(const FieldPlace& place) const {
  const TimeSeries& series = series_[starts_[place.file].series];
  const std::vector<std::int64_t> steps = rule_.target_steps(starts_[place.file].begin + place.start);
  const std::int64_t end = std::min(steps.back() + 1, std::ssize(series.times));
  std::int64_t last = newest_step(place);  // the last step that has a stored time, before a gap
  while (last + 1 < end && !has_gap_after(series.gaps, static_cast<std::size_t>(last))) ++last;
  std::vector<double> times;
  for (const std::int64_t step : steps) {
    const std::int64_t stored = std::min(step, last);
    const double more = step > last ? static_cast<double>(step - last) * series.step : 0;
    times.push_back(in_unit(series.times[static_cast<std::size_t>(stored)] + more));
  }
  return times;
}

const FieldDataset* fields_of(const Dataset& dataset) {
  return dynamic_cast<const FieldDataset*>(&without_roles(dataset));
}

}  // namespace lockstep::data
