// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_climatology.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/text.hpp"
#include "data/fields/field_agreement.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kMonths = 12;
constexpr std::int64_t kDays = 366;
constexpr std::array<std::string_view, 3> kTimesOfYear = {"month", "dayofyear", "time"};

std::vector<std::string> target_names(const FieldFile& targets) {
  std::vector<std::string> names;
  for (const FieldVariable& variable : targets.variables) {
    names.insert(names.end(), variable.names.begin(), variable.names.end());
  }
  return names;
}

/// The letters of a stored array: n = months or days, c = channels, and those of the space.
std::string letters_of(const arrays::ArrayInfo& array, const SampleSpace& space, std::int64_t targets,
                       const std::string& cited) {
  const auto is_of_times = [&array](std::size_t axis) {
    return axis < array.axes.size() && std::ranges::find(kTimesOfYear, array.axes[axis]) != kTimesOfYear.end();
  };
  std::string letters = letters_by_names(array, space);
  for (std::size_t axis = 0; axis < letters.size(); ++axis) {
    if (is_of_times(axis)) letters[axis] = 'n';
  }
  if (!letters.empty()) return letters;
  for (const SpaceAxis& axis : space) letters += axis.letter;
  const std::size_t rank = array.shape.size();
  if (rank == letters.size()) return letters;
  if (rank == letters.size() + 2) return "nc" + letters;
  if (rank == letters.size() + 1) {
    const std::int64_t count = array.shape.front();
    const bool has_no_name = array.axes.empty() || array.axes.front().empty();
    const bool counts_times = has_no_name && count != targets && (count == kMonths || count == kDays);
    return (counts_times || is_of_times(0) ? "n" : "c") + letters;
  }
  throw ConfigError(
      cited + ": the array '" + array.path + "' is " + shape_text(array.shape) + ", but a climatology has " +
      std::to_string(letters.size()) +
      " axes of space like the samples, and before them at most channels, and months or days of the year");
}

/// The channels of a variable that are those of the targets; empty = all.
std::vector<std::string> channels_for(const FieldFile& targets, const FieldVariable& variable) {
  const std::vector<std::string> wanted = target_names(targets);
  const auto has = [&](const std::string& name) {
    return std::ranges::find(variable.names, name) != variable.names.end();
  };
  if (std::ranges::all_of(wanted, has)) return wanted;
  const FieldVariable& target = targets.variables.front();
  const std::int64_t stored = std::ssize(variable.names);
  const bool is_like_target = targets.variables.size() == 1 && stored > std::ssize(wanted) &&
                              stored == target.axes.channel_count(target.info.shape);
  std::vector<std::string> positions;
  if (is_like_target) {
    for (const std::int64_t channel : target.channels) positions.push_back(std::to_string(channel));
  }
  return positions;
}

}  // namespace

FieldClimatology::FieldClimatology(const Cited<std::string>& choice, const FieldDescription& description,
                                   arrays::OpenFiles& files) {
  const std::size_t colon = choice.value.rfind(':');
  const std::string path = choice.value.substr(0, colon);
  FieldFileOptions options{.variables = {VariableChoice()}, .layout = {}, .layout_cited = choice.cite};
  if (colon != std::string::npos) options.variables = parse_variables(choice.value.substr(colon + 1), choice.cite);
  const auto file = files.get(path);
  const FieldFile& targets = description.pairs.front().targets;
  for (const VariableChoice& each : options.variables) {
    const std::string name = each.path.empty() ? std::filesystem::path(path).stem().string() : each.path;
    options.layout.by_variable[name] =
        letters_of(file->find(each.path), description.space, targets.channels(), choice.cite);
  }
  file_ = open_field_file(*file, options);
  VariableChoice& only = options.variables.front();
  if (options.variables.size() == 1 && only.channels.empty() && !file_.variables.front().axes.channels.empty()) {
    only.channels = channels_for(targets, file_.variables.front());
    file_ = open_field_file(*file, options);
  }
  require_same_fields(file_, file_, description.space);
  const std::string& inputs = description.pairs.front().inputs.path;
  differences_in(*file, file_, targets, description.space, inputs);  // throws where an axis runs the other way
  if (file_.channels() != targets.channels()) {
    throw ConfigError(choice.cite + ": " + choice.value + " has " + std::to_string(file_.channels()) +
                      " channels, but the targets have " + std::to_string(targets.channels()) +
                      "; name the channels, as in FILE:mean[t2m,z500]");
  }
  if (file_.trajectories != 1 && file_.trajectories != kMonths && file_.trajectories != kDays) {
    throw ConfigError(choice.cite + ": " + choice.value + " has " + std::to_string(file_.trajectories) +
                      " fields of each channel; a climatology has 1, 12 (months) or 366 (days of the year)");
  }
  if (file_.trajectories == 1) return;
  for (const FieldPair& pair : description.pairs) {
    if (!pair.inputs.times.empty()) continue;
    throw ConfigError(choice.cite + ": " + pair.inputs.path +
                      " has no times with a unit; use a climatology without months and days");
  }
}

std::int64_t FieldClimatology::entry_of(const FieldDescription& description, const FieldSeries& series,
                                        std::int64_t step) const {
  if (file_.trajectories == 1) return 0;
  const std::size_t number = file_of(series, step);
  const FieldFile& file = description.pairs[series.files[number]].inputs;
  const double seconds = file.times[static_cast<std::size_t>(step - series.begins[number])];
  const arrays::TimeUnit unit{.calendar = file.calendar};
  return file_.trajectories == kMonths ? arrays::date_of(unit, seconds).month - 1 : arrays::day_of_year(unit, seconds);
}

void FieldClimatology::read(const FieldDescription& description, arrays::OpenFiles& files, const FieldSeries& series,
                            std::int64_t step, float* out) const {
  const std::int64_t points = points_of(description.space);
  const std::int64_t entry = entry_of(description, series, step);
  const auto file = files.get(file_.path);
  for (const FieldVariable& variable : file_.variables) {
    const std::int64_t size = std::ssize(variable.channels) * points;
    read_steps(*file, variable, variable.axes.trajectory ? entry : 0, 0, 1, 1, description.space, out, size);
    out += size;
  }
}

}  // namespace lockstep::data
