// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_files.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

/// The arrays that `*` in a path stands for, by group.
std::vector<std::string> groups_of(const arrays::ArrayFile& file, const std::string& pattern) {
  const std::size_t star = pattern.find('*');
  const std::string before = pattern.substr(0, star);
  const std::string after = pattern.substr(star + 1);
  std::vector<std::string> groups;
  for (const std::string& name : file.names()) {
    if (!name.starts_with(before) || !name.ends_with(after) || name.size() < before.size() + after.size()) continue;
    const std::string group = name.substr(before.size(), name.size() - before.size() - after.size());
    if (!group.empty() && group.find('/') == std::string::npos) groups.push_back(before + group);
  }
  return groups;
}

std::string tail_of(const std::string& pattern) { return pattern.substr(pattern.find('*') + 1); }

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Names of the components of a vector or tensor: velocity_x, or strain_xy.
std::vector<std::string> component_names(const std::string& base, const FieldAxes& axes, std::int64_t count) {
  const std::string space = axes.space_letters();
  std::vector<std::string> names;
  const auto size = std::ssize(space);
  for (std::int64_t i = 0; i < count; ++i) {
    std::string part = std::to_string(i);
    if (axes.channels.size() == 2 && count == size * size) {
      part = std::string("_") + space[static_cast<std::size_t>(i / size)] + space[static_cast<std::size_t>(i % size)];
    } else if (axes.channels.size() == 1 && count == size && size > 1) {
      part = std::string("_") + space[static_cast<std::size_t>(i)];
    }
    names.push_back(base + part);
  }
  return names;
}

/// "z500" for z[level=500], and "data" for the array of an npy file, which has no name.
std::string fixed_name(const VariableChoice& choice) {
  std::string name = choice.path.empty() ? "data" : last_part(choice.path);
  for (const AxisChoice& each : choice.fixed) name += (each.is_index ? "#" : "") + each.value;
  return name;
}

std::vector<std::string> channel_names(const arrays::ArrayFile& file, const FieldVariable& variable,
                                       const VariableChoice& choice, const FieldFileOptions& options) {
  const std::int64_t count = variable.axes.channel_count(variable.info.shape);
  if (variable.axes.channels.empty()) return {fixed_name(choice)};
  if (!options.channel_names.empty() && std::ssize(options.channel_names) == count) return options.channel_names;
  if (variable.axes.channels.size() == 1) {
    const std::string axis = axis_name(variable.info, variable.axes, variable.axes.channels.front());
    const std::vector<std::string> stored = file.texts(axis == "c" ? "channel" : axis);
    if (std::ssize(stored) == count) return stored;
  }
  const std::string base = variable.groups.empty() ? last_part(variable.info.path) : "c";
  return component_names(base.empty() ? "c" : base, variable.axes, count);
}

/// The positions of chosen channels.
std::vector<std::int64_t> channel_positions(const std::vector<std::string>& chosen,
                                            const std::vector<std::string>& names, const std::string& place) {
  std::vector<std::int64_t> positions;
  for (const std::string& channel : chosen) {
    const auto found = std::ranges::find(names, channel);
    const auto index = parse_integer(channel);
    if (found != names.end()) {
      positions.push_back(found - names.begin());
    } else if (index && *index >= 0 && *index < std::ssize(names)) {
      positions.push_back(*index);
    } else {
      const std::string near = nearest_name(channel, names);
      throw ConfigError(place + ": there is no channel '" + channel + "'; " +
                        (near.empty() ? "" : "did you mean '" + near + "'? ") + "The channels are " + joined(names));
    }
  }
  return positions;
}

void choose_channels(const arrays::ArrayFile& file, FieldVariable& variable, const VariableChoice& choice,
                     const FieldFileOptions& options) {
  const std::vector<std::string> names = channel_names(file, variable, choice, options);
  if (choice.channels.empty()) {
    variable.channels.resize(names.size());
    std::iota(variable.channels.begin(), variable.channels.end(), 0);
    variable.names = names;
    return;
  }
  if (variable.axes.channels.empty()) {
    throw ConfigError(file.path() + ": the array '" + choice.path + "' has no channel axis to choose '" +
                      choice.channels.front() +
                      "' from; remove the brackets, or give the axis the letter c in "
                      "data.layout");
  }
  variable.channels = channel_positions(choice.channels, names, file.path() + ": " + choice.path);
  for (const std::int64_t position : variable.channels) {
    variable.names.push_back(names[static_cast<std::size_t>(position)]);
  }
}

/// Whether attribute `name` of an array says that it does not vary along an axis.
bool is_constant(const arrays::ArrayInfo& info, const std::string& name, std::size_t position = 0) {
  const std::vector<double> flags = arrays::numbers_of(info.attributes, name);
  return position < flags.size() && flags[position] == 0;
}

std::vector<bool> repeated_axes(const arrays::ArrayInfo& info, const FieldAxes& axes) {
  std::vector<bool> repeats(info.shape.size());
  if (axes.trajectory) repeats[*axes.trajectory] = is_constant(info, "sample_varying");
  if (axes.time) repeats[*axes.time] = is_constant(info, "time_varying");
  for (std::size_t i = 0; i < axes.space.size(); ++i) repeats[axes.space[i]] = is_constant(info, "dim_varying", i);
  for (std::size_t i = 0; i < repeats.size(); ++i) repeats[i] = repeats[i] && info.shape[i] == 1;
  return repeats;
}

FoundLetters letters_for(const arrays::ArrayFile& file, const arrays::ArrayInfo& info, const VariableChoice& choice,
                         const FieldFileOptions& options) {
  // An npy file has one array without a name.
  const std::string& given =
      options.layout.of(choice.path.empty() ? std::filesystem::path(file.path()).stem().string() : choice.path);
  if (!given.empty()) return {given, "data.layout"};
  FoundLetters found = found_letters(info, choice.path.find('*') != std::string::npos);
  if (!found.letters.empty()) return found;
  throw ConfigError(options.layout_cited + ": the axes of the array '" + choice.path + "' of " + file.path() + ", " +
                    shape_text(info.shape) +
                    ", have no names; give each of them a letter: n = trajectory, t = time, c = channel, others = "
                    "space, as in ntxy");
}

FieldVariable open_variable(const arrays::ArrayFile& file, const VariableChoice& choice,
                            const FieldFileOptions& options) {
  FieldVariable variable;
  std::string path = choice.path;
  if (path.find('*') != std::string::npos) {
    variable.groups = groups_of(file, path);
    if (variable.groups.empty()) {
      throw DataError(file.path(), "no group has the array '" + path + "'; its arrays are " + joined(file.names()));
    }
    path = variable.groups.front() + tail_of(path);
  }
  variable.info = file.find(path);
  variable.packing = arrays::packing_of(file.path(), variable.info);
  const FoundLetters found = letters_for(file, variable.info, choice, options);
  variable.axes = axes_of(file, variable.info, found.letters, choice, options.layout_cited);
  variable.layout_rule = found.rule;
  std::vector<arrays::Packing> packings = {variable.packing};
  for (std::size_t i = 1; i < variable.groups.size(); ++i) {
    const arrays::ArrayInfo other = file.find(variable.groups[i] + tail_of(choice.path));
    if (other.shape == variable.info.shape && other.type == variable.info.type) {
      packings.push_back(arrays::packing_of(file.path(), other));
      continue;
    }
    throw DataError(file.path(), "the array '" + other.path + "' is " + shape_text(other.shape) + " of " +
                                     arrays::name_of(other.type) + ", but '" + variable.info.path + "' is " +
                                     shape_text(variable.info.shape) + " of " + arrays::name_of(variable.info.type));
  }
  if (!variable.groups.empty() && variable.axes.trajectory) {
    throw ConfigError(options.layout_cited + ": each group is a trajectory, so the layout '" + variable.axes.letters +
                      "' of '" + choice.path + "' must not have the letter n");
  }
  if (std::ranges::count(packings, variable.packing) < std::ssize(packings)) {
    variable.group_packings = std::move(packings);
  }
  variable.units = unit_of(variable.info);
  variable.repeats = repeated_axes(variable.info, variable.axes);
  choose_channels(file, variable, choice, options);
  return variable;
}

/// The size of an axis of a variable; none if it has no such axis or is repeated along it.
std::optional<std::int64_t> size_along(const FieldVariable& variable, const std::optional<std::size_t>& axis) {
  if (!axis || variable.repeats[*axis]) return std::nullopt;
  return variable.info.shape[*axis];
}

/// A number that all variables have, such as that of steps.
class CommonSize {
 public:
  CommonSize(const std::string& path, std::string what) : path_(path), what_(std::move(what)) {}
  void add(const std::string& variable, const std::optional<std::int64_t>& size) {
    if (!size) return;
    if (!size_) {
      size_ = size;
      first_ = variable;
    } else if (*size != *size_) {
      throw DataError(path_, "the array '" + variable + "' has " + std::to_string(*size) + " " + what_ + ", but '" +
                                 first_ + "' has " + std::to_string(*size_));
    }
  }
  std::optional<std::int64_t> size() const { return size_; }

 private:
  std::string path_;
  std::string what_;
  std::string first_;
  std::optional<std::int64_t> size_;
};

/// The name of the array with the times of a file's steps.
std::string time_name(const FieldVariable& variable) {
  const std::string name = axis_name(variable.info, variable.axes, *variable.axes.time);
  return name == "t" ? "time" : name;
}

/// Sets the times of a file, unless it has none with a unit.
void set_times(const arrays::ArrayFile& file, const FieldVariable& variable, FieldFile& described) {
  const std::string axis = time_name(variable);
  const std::vector<double> values = coordinate_of(file, variable.info.path, axis);
  if (values.empty()) return;
  const arrays::ArrayInfo stored = *time_array(file, variable);
  std::vector<std::string> units = arrays::texts_of(stored.attributes, "units");
  const bool is_implied = units.empty();
  if (is_implied) units = {implied_time_unit(stored)};
  if (!arrays::has_reference_date(units.front())) return;  // the time of a simulation, for example
  const std::vector<std::string> calendar = arrays::texts_of(stored.attributes, "calendar");
  std::vector<double> times;
  try {
    const arrays::TimeUnit unit = arrays::parse_time_unit(units.front(), calendar.empty() ? "" : calendar.front());
    described.calendar = unit.calendar;
    for (const double value : values) times.push_back(arrays::seconds_of(unit, value));
  } catch (const ConfigError& error) {
    throw DataError(file.path(), "the array '" + axis + "': " + error.what());
  }
  const auto is_before = [](double time, double next) { return time < next; };
  const bool increases = std::ranges::adjacent_find(times, std::not_fn(is_before)) == times.end();
  if (is_implied && !increases) return;  // they are something else
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::string step = "step " + std::to_string(i);
    if (times[i] != times[i]) throw DataError(file.path(), "the array '" + axis + "' has no time (NaN) at " + step);
    if (i > 0 && times[i] <= times[i - 1]) {
      throw DataError(file.path(), "the times of the array '" + axis + "' do not increase at " + step +
                                       "; write the steps in the order of time, each once");
    }
  }
  described.times = std::move(times);
  described.has_implied_unit = is_implied;
}

}  // namespace

std::string FieldVariable::path_of(std::int64_t trajectory) const {
  if (groups.empty()) return info.path;
  return groups[static_cast<std::size_t>(trajectory)] + info.path.substr(groups.front().size());
}

const arrays::Packing& FieldVariable::packing_of(std::int64_t trajectory) const {
  return group_packings.empty() ? packing : group_packings[static_cast<std::size_t>(trajectory)];
}

std::optional<arrays::ArrayInfo> time_array(const arrays::ArrayFile& file, const FieldVariable& variable) {
  return coordinate_array(file, variable.info.path, time_name(variable));
}

std::string implied_time_unit(const arrays::ArrayInfo& times) {
  return last_part(times.path) == "timestamp" ? "seconds since 1970-01-01" : "";
}

std::int64_t FieldFile::channels() const {
  std::int64_t count = 0;
  for (const FieldVariable& variable : variables) count += std::ssize(variable.channels);
  return count;
}

std::int64_t points_of(const SampleSpace& space) {
  std::int64_t points = 1;
  for (const SpaceAxis& axis : space) points *= axis.count();
  return points;
}

std::vector<VariableChoice> found_variables(const arrays::ArrayFile& file) {
  const std::vector<std::string> names = file.names();
  const auto has = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  const auto choices = [](const std::vector<std::string>& paths) {
    std::vector<VariableChoice> result;
    for (const std::string& path : paths) result.push_back({.path = path});
    return result;
  };
  if (names == std::vector<std::string>{""}) return choices({""});
  std::vector<std::string> found;
  for (const std::string group : {"t0_fields", "t1_fields", "t2_fields"}) {  // The Well
    const auto is_inside = [&group](const std::string& name) { return name.starts_with(group + "/"); };
    if (std::ranges::none_of(names, is_inside)) continue;
    for (const std::string& field : arrays::texts_of(file.attributes_of(group), "field_names")) {
      const std::string name = group + "/" + field;
      if (has(name) && !is_constant(file.find(name), "time_varying")) found.push_back(name);
    }
  }
  for (const char* name : {"density", "pressure", "Vx", "Vy", "Vz"}) {  // PDEBench
    if (found.empty() || !found.front().starts_with("t0_")) {
      if (has(name)) found.emplace_back(name);
    }
  }
  for (const char* name : {"tensor", "fields", "data"}) {
    if (found.empty() && has(name)) found.emplace_back(name);
  }
  if (found.empty() && !names.empty() && names.front().ends_with("/data")) found.emplace_back("*/data");
  if (found.empty()) {  // arrays with the most named axes, without coordinates
    std::size_t most = 2;
    for (const std::string& name : names) {
      arrays::ArrayInfo info;
      try {
        info = file.find(name);
      } catch (const DataError&) {  // texts, for example
        continue;
      }
      const bool is_named = std::ranges::none_of(info.axes, [](const std::string& axis) { return axis.empty(); });
      if (info.axes.empty() || !is_named || info.axes.size() < most) continue;
      if (info.axes.size() > most) found.clear();
      most = info.axes.size();
      found.push_back(name);
    }
  }
  if (!found.empty()) return choices(found);
  throw DataError(file.path(),
                  "it is not obvious which arrays are fields; set data.variables. The arrays are " + joined(names));
}

namespace {

/// Gives arrays with equal names of channels the names of their groups, as in a/T and b/T.
void separate_names(const std::vector<VariableChoice>& choices, std::vector<FieldVariable>& variables) {
  std::map<std::string, int> counts;
  for (const FieldVariable& variable : variables) {
    for (const std::string& name : variable.names) ++counts[name];
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::size_t slash = choices[i].path.rfind('/');
    if (slash == std::string::npos || !variables[i].groups.empty()) continue;
    for (std::string& name : variables[i].names) {
      if (counts[name] > 1) name = choices[i].path.substr(0, slash + 1) + name;
    }
  }
}

}  // namespace

FieldFile open_field_file(const arrays::ArrayFile& file, const FieldFileOptions& options) {
  FieldFile described{.path = file.path(), .variables = {}};
  CommonSize trajectories(file.path(), "trajectories"), steps(file.path(), "steps");
  for (const VariableChoice& choice : options.variables) {
    FieldVariable variable = open_variable(file, choice, options);
    const std::optional<std::int64_t> groups =
        variable.groups.empty() ? std::nullopt : std::optional<std::int64_t>(std::ssize(variable.groups));
    trajectories.add(choice.path, groups ? groups : size_along(variable, variable.axes.trajectory));
    steps.add(choice.path, size_along(variable, variable.axes.time));
    described.has_time = described.has_time || variable.axes.time.has_value();
    described.variables.push_back(std::move(variable));
  }
  separate_names(options.variables, described.variables);
  described.trajectories = trajectories.size().value_or(1);
  described.steps = steps.size().value_or(1);
  for (const FieldVariable& variable : described.variables) {
    if (!variable.axes.time || !variable.groups.empty() || !described.times.empty()) continue;
    set_times(file, variable, described);
    // The files of PDEBench have one time more than steps.
    if (std::ssize(described.times) < described.steps) described.times.clear();
    if (!described.times.empty()) described.times.resize(static_cast<std::size_t>(described.steps));
  }
  return described;
}

SampleSpace space_of(const arrays::ArrayFile& file, const FieldFile& described,
                     const std::map<std::string, SpacePart>& parts) {
  SampleSpace space;
  const FieldVariable* first = nullptr;
  for (const FieldVariable& variable : described.variables) {
    const auto repeats = [&](std::size_t axis) { return bool(variable.repeats[axis]); };
    if (first == nullptr ||
        (std::ranges::any_of(first->axes.space, [&](std::size_t axis) { return bool(first->repeats[axis]); }) &&
         std::ranges::none_of(variable.axes.space, repeats))) {
      first = &variable;
    }
  }
  std::set<std::string> known;
  for (const std::size_t axis : first->axes.space) {
    if (first->info.shape[axis] == 0) {
      throw DataError(file.path(), "the array '" + first->info.path + "' has no points along its axis " +
                                       axis_name(first->info, first->axes, axis));
    }
    SpaceAxis each{.letter = first->axes.letters[axis],
                   .name = axis_name(first->info, first->axes, axis),
                   .size = first->info.shape[axis]};
    const std::string letter(1, each.letter);
    const auto part = parts.contains(each.name) ? parts.find(each.name) : parts.find(letter);
    if (part != parts.end()) {
      each.part = part->second;
      known.insert(part->first);
    }
    if (each.part.end < 0) each.part.end = each.size;
    if (each.part.end > each.size || each.part.begin >= each.part.end) {
      throw ConfigError(each.part.cited + ": " + part->first + ":" + std::to_string(each.part.begin) + "-" +
                        std::to_string(each.part.end) + " ends outside of the axis, which has " +
                        std::to_string(each.size) + " points in " + file.path());
    }
    const auto stored = coordinate_array(file, first->info.path, each.name);
    const std::vector<double> all = stored ? coordinates_in(file, *stored) : std::vector<double>();
    if (stored) each.unit = unit_of(*stored);
    for (std::int64_t i = each.part.begin; std::ssize(all) == each.size && i < each.part.end; i += each.part.step) {
      each.coordinates.push_back(all[static_cast<std::size_t>(i)]);
    }
    space.push_back(std::move(each));
  }
  for (const auto& [axis, part] : parts) {
    if (known.contains(axis)) continue;
    throw ConfigError(part.cited + ": the fields have no axis '" + axis + "'; their axes of space are '" +
                      first->axes.space_letters() + "'");
  }
  return space;
}

namespace {

/// @throws DataError  an axis of space of a variable has another size than that of the samples
void require_space(const FieldFile& file, const FieldVariable& variable, const SampleSpace& space) {
  if (variable.axes.space.size() != space.size()) {
    throw DataError(file.path, "the array '" + variable.info.path + "' has " +
                                   std::to_string(variable.axes.space.size()) +
                                   " axes of space, but the samples have " + std::to_string(space.size()));
  }
  for (const SpaceAxis& axis : space) {
    const std::size_t stored = variable.axes.letters.find(axis.letter);
    if (stored == std::string::npos || variable.axes.fixed[stored] >= 0) {
      throw DataError(file.path, "the array '" + variable.info.path + "' has no axis " + axis.name + " (letter " +
                                     axis.letter + " of its layout " + variable.axes.letters + ")");
    }
    if (variable.info.shape[stored] == axis.size || variable.repeats[stored]) continue;
    throw DataError(file.path, "the array '" + variable.info.path + "' has " +
                                   std::to_string(variable.info.shape[stored]) + " points along " + axis.name +
                                   ", but the samples have " + std::to_string(axis.size));
  }
}

}  // namespace

void require_same_fields(const FieldFile& first, const FieldFile& other, const SampleSpace& space) {
  for (std::size_t i = 0; i < other.variables.size(); ++i) {
    const FieldVariable& variable = other.variables[i];
    const FieldVariable& model = first.variables[i];
    if (variable.names != model.names) {
      throw DataError(other.path, "the array '" + variable.info.path + "' has the channels " + joined(variable.names) +
                                      ", but those of " + first.path + " are " + joined(model.names));
    }
    if (variable.packing.is_scaled != model.packing.is_scaled) {
      throw DataError(other.path, "the array '" + variable.info.path + "' has " +
                                      (variable.packing.is_scaled ? "" : "no ") +
                                      "scale_factor and add_offset, unlike in " + first.path +
                                      "; its values would have another meaning");
    }
    require_space(other, variable, space);
  }
}

}  // namespace lockstep::data
