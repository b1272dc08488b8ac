// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/field_survey.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/numbers/latitudes.hpp"
#include "core/text/text.hpp"

namespace lockstep::trainer {

namespace {

using data::FieldDescription;
using data::FieldFile;
using data::FieldSeries;
using data::FieldVariable;

constexpr double kMiB = 1 << 20;
constexpr double kManyOpens = 1000;  // opens of an epoch

std::string megabytes(double bytes) { return number_text(bytes / kMiB, 3) + " MiB"; }

/// The windows of a series without gaps of time, as far as they lie in its steps.
std::int64_t windows_without_gaps(const FieldSeries& series, const data::WindowRule& rule) {
  const std::vector<std::int64_t> starts = data::starts_in(0, series.end, rule, {});
  return std::ranges::count_if(starts, [&](std::int64_t start) { return start >= series.begin; });
}

FieldSplit split_of(const std::string& name, const data::FieldDataset& dataset) {
  const FieldDescription& description = dataset.description();
  FieldSplit split{.name = name, .windows = dataset.size()};
  std::set<std::size_t> files;
  for (const FieldSeries& series : description.series) {
    const auto trajectories = std::ssize(series.trajectories);
    const auto last = static_cast<std::ptrdiff_t>(data::file_of(series, series.end - 1));
    files.insert(series.files.begin() + static_cast<std::ptrdiff_t>(data::file_of(series, series.begin)),
                 series.files.begin() + last + 1);
    split.trajectories += trajectories;
    split.steps += trajectories * (series.end - series.begin);
    if (series.gaps.empty()) continue;
    split.left_at_gaps += trajectories * (windows_without_gaps(series, description.rule) - std::ssize(series.starts));
  }
  split.files = std::ssize(files);
  for (const std::size_t pair : description.too_short) split.too_short.push_back(description.pairs[pair].inputs.path);
  return split;
}

std::string unit_of(const arrays::ArrayFile& file, const FieldVariable& variable, const std::string& axis) {
  try {
    const auto array = data::coordinate_array(file, variable.info.path, axis);
    return array ? data::unit_of(*array) : "";
  } catch (const DataError&) {  // the coordinates are texts, such as names of channels
    return "";
  }
}

FieldArray array_of(const arrays::ArrayFile& file, const FieldVariable& variable) {
  FieldArray array{.file = file.path(), .variable = variable, .storage = storage_of(file, variable.info)};
  for (std::size_t axis = 0; axis < variable.info.shape.size(); ++axis) {
    array.axis_units.push_back(unit_of(file, variable, data::axis_name(variable.info, variable.axes, axis)));
  }
  return array;
}

/// The arrays of the inputs and targets, each once.
std::vector<FieldArray> arrays_of(const FieldDescription& description) {
  std::vector<FieldArray> arrays;
  const auto add = [&](const FieldFile& file, bool are_targets) {
    const auto open = arrays::open_arrays(file.path);
    for (const FieldVariable& variable : file.variables) {
      const auto known = std::ranges::find_if(arrays, [&](const FieldArray& other) {
        return other.file == file.path && other.variable.info.path == variable.info.path &&
               other.variable.axes.fixed == variable.axes.fixed && other.variable.channels == variable.channels;
      });
      const bool is_new = known == arrays.end();
      FieldArray& array = is_new ? arrays.emplace_back() : *known;
      if (is_new) array = array_of(*open, variable);
      (are_targets ? array.is_target : array.is_input) = true;
    }
  };
  add(description.pairs.front().inputs, false);
  if (description.rule.steps_out > 0) add(description.pairs.front().targets, true);
  return arrays;
}

/// A unit of time that turns seconds from the origin of the calendar of these files into dates.
arrays::TimeUnit seconds_unit(const arrays::ArrayFile& file, const FieldFile& described) {
  for (const FieldVariable& variable : described.variables) {
    if (!variable.axes.time || !variable.groups.empty()) continue;
    const auto array = data::time_array(file, variable);
    if (!array) continue;
    const std::vector<std::string> units = arrays::texts_of(array->attributes, "units");
    const std::vector<std::string> calendar = arrays::texts_of(array->attributes, "calendar");
    if (units.empty() || !arrays::has_reference_date(units.front())) continue;
    return {.calendar = arrays::parse_time_unit(units.front(), calendar.empty() ? "" : calendar.front()).calendar};
  }
  return {};
}

std::optional<FieldTimes> times_of(const arrays::ArrayFile& file, const FieldDescription& description) {
  const arrays::TimeUnit unit = seconds_unit(file, description.pairs.front().inputs);
  const auto date = [&unit](double seconds) { return arrays::text_of(arrays::date_of(unit, seconds)); };
  std::vector<double> first_times, last_times;
  FieldTimes times;
  for (const FieldSeries& series : description.series) {
    std::vector<double> all;
    for (const std::size_t number : series.files) {
      const std::vector<double>& own = description.pairs[number].inputs.times;
      if (own.empty()) return std::nullopt;
      all.insert(all.end(), own.begin(), own.end());
    }
    const std::vector<double> used(all.begin() + series.begin, all.begin() + series.end);
    first_times.push_back(used.front());
    last_times.push_back(used.back());
    if (times.step == 0 && used.size() > 1) times.step = arrays::commonest_step(used);
    for (std::int64_t step = series.begin; step + 1 < series.end && step < std::ssize(series.gaps); ++step) {
      if (!series.gaps[static_cast<std::size_t>(step)]) continue;
      if (++times.gaps == 1) times.first_gap = date(all[static_cast<std::size_t>(step)]);
    }
  }
  if (first_times.empty()) return std::nullopt;
  times.first = date(std::ranges::min(first_times));
  times.last = date(std::ranges::max(last_times));
  return times;
}

double sample_bytes_of(const FieldDescription& description) {
  double bytes = 0;
  const auto add = [&](const FieldFile& file, std::int64_t steps) {
    for (const FieldVariable& variable : file.variables) {
      bytes += static_cast<double>(steps * std::ssize(variable.channels) * data::points_of(description.space)) *
               static_cast<double>(variable.info.type.bytes);
    }
  };
  add(description.pairs.front().inputs, description.rule.steps_in);
  add(description.pairs.front().targets, description.rule.steps_out);
  return bytes;
}

// ---- Warnings.

/// @param limit  memory for chunks in bytes
std::string large_chunk_warning(const FieldArray& array, const FieldSurvey& survey, double limit) {
  if (array.storage.chunk_bytes <= limit || !data::is_in_chunks(array.file, array.variable)) return "";
  return array.file + ": a chunk of the array '" + array.variable.info.path + "' has " +
         megabytes(array.storage.chunk_bytes) +
         ", more than data.chunk_cache_mb, so that it is unpacked again for "
         "each sample, which has " +
         megabytes(survey.sample_bytes) + "; store smaller chunks with h5repack -l, or increase data.chunk_cache_mb";
}

std::string open_files_warning(const FieldDescription& description, const FieldSplit& train, const ReadingKeys& keys) {
  std::set<std::string> files;
  for (const data::FieldPair& pair : description.pairs) {
    files.insert(pair.inputs.path);
    if (description.rule.steps_out > 0) files.insert(pair.targets.path);
  }
  const auto count = static_cast<double>(files.size());
  const auto open = static_cast<double>(keys.open_files);
  if (count <= open) return "";
  const double per_sample = count / static_cast<double>(description.pairs.size());  // 2 = inputs and targets
  double opens = count;
  if (keys.is_random) opens = std::max(opens, per_sample * static_cast<double>(train.windows) * (1 - open / count));
  if (opens < kManyOpens) return "";
  return "an epoch opens about " + number_text(std::round(opens)) + " files: the samples are in " +
         std::to_string(files.size()) +
         " files, of which a rank keeps data.open_files=" + std::to_string(keys.open_files) +
         " open; set data.open_files=" + std::to_string(files.size()) +
         " (ulimit -n must allow it), or store more samples in a file";
}

bool spans_the_circle(const data::SpaceAxis& axis) {
  if (!is_longitude_axis(axis.name, axis.unit) || axis.coordinates.size() < 2) return false;
  const auto points = static_cast<double>(axis.coordinates.size());
  const double span = std::abs(axis.coordinates.back() - axis.coordinates.front()) * points / (points - 1);
  return std::abs(span - 360) < 0.5 * 360 / points;
}

std::string padding_hint(const FieldSurvey& survey, const ReadingKeys& keys) {
  std::vector<std::string> words;
  std::string longitude;
  for (const data::SpaceAxis& axis : survey.space) {
    const bool is_circle = spans_the_circle(axis);
    if (is_circle) longitude = axis.name;
    words.emplace_back(is_circle ? "circular" : "zero");
  }
  if (longitude.empty() || keys.padding.find("circular") != std::string::npos) return "";
  return "the axis " + longitude + " spans 360 degrees; model.padding=" + joined(words, ",") +
         " continues fields across its ends";
}

}  // namespace

StorageFacts storage_of(const arrays::ArrayFile& file, const arrays::ArrayInfo& array) {
  StorageFacts facts{.layout = array.storage.layout, .chunk = array.storage.chunk, .filters = array.storage.filters};
  const auto bytes = static_cast<double>(array.type.bytes);
  facts.bytes = static_cast<double>(arrays::size_of(arrays::whole(array))) * bytes;
  if (!facts.chunk.empty()) facts.chunk_bytes = bytes;
  for (const std::int64_t size : facts.chunk) facts.chunk_bytes *= static_cast<double>(size);
  if (const auto stored = file.stored_bytes(array)) facts.stored = static_cast<double>(*stored);
  return facts;
}

FieldSurvey survey_fields(const FieldParts& parts, const ReadingKeys& keys) {
  const data::FieldDataset& train = *parts.front().second;
  const FieldDescription& description = train.description();
  const Task task = train.task();
  FieldSurvey survey{.rule = description.rule,
                     .input_shape = task.sample_shape,
                     .inputs = task.fields.inputs,
                     .arrays = arrays_of(description),
                     .space = description.space,
                     .sample_bytes = sample_bytes_of(description),
                     .chunks = data::chunk_cost_of(description)};
  if (description.rule.steps_out > 0) {
    if (description.classes == 0) survey.target_shape.push_back(task.classes);
    for (const data::SpaceAxis& axis : description.space) survey.target_shape.push_back(axis.count());
  }
  for (const auto& [name, dataset] : parts) {
    if (dataset != nullptr) survey.splits.push_back(split_of(name, *dataset));
  }
  survey.values_per_channel = survey.splits.front().steps * data::points_of(description.space);
  const auto file = arrays::open_arrays(description.pairs.front().inputs.path);
  survey.times = times_of(*file, description);
  const auto warn = [&](const std::string& warning) {
    if (!warning.empty()) survey.warnings.push_back(warning);
  };
  for (const FieldArray& array : survey.arrays) warn(large_chunk_warning(array, survey, keys.chunk_cache_mb * kMiB));
  warn(open_files_warning(description, survey.splits.front(), keys));
  warn(padding_hint(survey, keys));
  return survey;
}

}  // namespace lockstep::trainer
