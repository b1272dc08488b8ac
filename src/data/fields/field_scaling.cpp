// SPDX-License-Identifier: BSD-3-Clause
// The task of fields: their channels, and how these are normalized.
#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>

#include "core/text/text.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/stores/cache_files.hpp"

namespace lockstep::data {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ChannelNumbers& numbers) {
  return {{"count", numbers.count}, {"mean", numbers.mean}, {"std", numbers.std},
          {"rms", numbers.rms},     {"min", numbers.min},   {"max", numbers.max}};
}

std::vector<std::string> names_in(const FieldFile& file) {
  std::vector<std::string> names;
  for (const FieldVariable& variable : file.variables) {
    names.insert(names.end(), variable.names.begin(), variable.names.end());
  }
  return names;
}

/// The numbers of given statistics for the channels of a file.
/// @param are_targets  the file has targets that are no inputs
std::vector<FieldNumbers> given_for(const StatedNumbers& given, const FieldFile& file, bool are_targets) {
  std::int64_t all = 0;
  for (const FieldVariable& variable : file.variables) all += variable.axes.channel_count(variable.info.shape);
  std::vector<FieldNumbers> numbers;
  std::int64_t begin = 0;
  for (const FieldVariable& variable : file.variables) {
    for (std::size_t i = 0; i < variable.channels.size(); ++i) {
      numbers.push_back(given.of(variable.names[i], begin + variable.channels[i], all, are_targets));
    }
    begin += variable.axes.channel_count(variable.info.shape);
  }
  return numbers;
}

/// The text of statistics.json.
std::string statistics_text(const std::vector<FieldNumbers>& numbers, std::int64_t difference_steps) {
  Json channels = Json::array();
  for (const FieldNumbers& each : numbers) {
    Json channel = {{"channel", each.channel}, {"values", json_of(each.values)}};
    if (each.differences.count > 0) channel["differences"] = json_of(each.differences);
    channels.push_back(std::move(channel));
  }
  return Json{{"difference_steps", difference_steps}, {"channels", std::move(channels)}}.dump(2);
}

/// The numbers of a field without time.
ChannelNumbers numbers_of_static(const float* values, std::int64_t points) {
  const std::vector<double> wide(values, values + points);
  return moments_of(wide.data(), 1, points, points, {}).numbers();
}

}  // namespace

std::vector<std::string> FieldDataset::input_names() const {
  std::vector<std::string> names;
  const std::vector<std::string> of_step = names_in(description_.pairs.front().inputs);
  for (std::int64_t age = description_.rule.steps_in - 1; age >= 0; --age) {
    for (const std::string& name : of_step) names.push_back(age == 0 ? name : name + "@-" + std::to_string(age));
  }
  names.insert(names.end(), description_.static_names.begin(), description_.static_names.end());
  if (description_.has_gap_channel) {
    for (std::size_t i = 0, stored = names.size(); i < stored; ++i) names.push_back(names[i] + " has a value");
  }
  names.insert(names.end(), description_.position_names.begin(), description_.position_names.end());
  for (const std::string& cycle : description_.cycles) {
    names.push_back("sine of the " + cycle);
    names.push_back("cosine of the " + cycle);
  }
  return names;
}

std::vector<FieldNumbers> FieldDataset::given() const {
  std::vector<FieldNumbers> numbers = given_for(*given_, description_.pairs.front().inputs, false);
  if (inputs_of_targets_.empty() && has_targets() && given_->has_names() && description_.classes == 0) {
    const std::vector<FieldNumbers> targets = given_for(*given_, description_.pairs.front().targets, true);
    numbers.insert(numbers.end(), targets.begin(), targets.end());
  }
  share_deviations(numbers, description_.normalization);
  return numbers;
}

FieldScaling FieldDataset::scaling(const std::vector<FieldNumbers>& numbers) const {
  const NormalizationRule& rule = description_.normalization;
  const WindowRule& window = description_.rule;
  const std::int64_t channels = description_.pairs.front().inputs.channels();
  const std::int64_t targets = description_.pairs.front().targets.channels();
  const bool predicts_values = rule.prediction == FieldPrediction::values;
  FieldScaling scaling{.fills_gaps = description_.gaps == GapRule::mean,
                       .input_steps = window.steps_in,
                       .input_channels = channels,
                       .target_steps = std::max<std::int64_t>(window.steps_out, 1),
                       .fed_back = inputs_of_targets_,
                       .adds_newest = !predicts_values,
                       .adds_steps = rule.prediction == FieldPrediction::steps};
  const std::size_t inputs = input_names().size();
  if (!rule.rates.empty()) {
    scaling.input_rates.resize(inputs, 0);
    for (const auto& [channel, rate] : rule.rates) {
      if (channel >= static_cast<std::int64_t>(inputs)) {
        throw ConfigError(rule.exponential_cited + ": there is no input channel " + std::to_string(channel) +
                          "; the samples have " + std::to_string(inputs));
      }
      scaling.input_rates[static_cast<std::size_t>(channel)] = rate;
    }
  }
  if (rule.kind == Normalization::none) return scaling;
  const bool has_floor_of_well = given_ && given_->has_floor_of_well();
  const auto affine = [&](const ChannelNumbers& known) { return affine_of(known, rule, has_floor_of_well); };
  const auto add_input = [&](const Affine& map) {
    scaling.input_shift.push_back(map.shift);
    scaling.input_scale.push_back(map.scale);
  };
  for (std::int64_t step = 0; step < window.steps_in; ++step) {
    for (std::int64_t c = 0; c < channels; ++c) {
      add_input(numbers.empty() ? Affine() : affine(numbers[static_cast<std::size_t>(c)].values));
    }
  }
  const std::int64_t points = points_of(description_.space);
  for (std::size_t i = 0; i < description_.static_names.size(); ++i) {
    const std::string& name = description_.static_names[i];
    const float* const values = description_.statics.data() + static_cast<std::int64_t>(i) * points;
    add_input(
        affine(given_ && given_->names(name) ? given_->of(name, 0, 1).values : numbers_of_static(values, points)));
  }
  while (scaling.input_shift.size() < inputs) add_input({});

  const bool has_numbers = !inputs_of_targets_.empty() || numbers.empty() || std::ssize(numbers) == channels + targets;
  if (description_.classes > 0 || !has_numbers) return scaling;
  for (std::int64_t step = 0; step < window.steps_out; ++step) {
    for (std::int64_t c = 0; c < targets; ++c) {
      Affine map;
      if (!numbers.empty()) {
        const std::int64_t position =
            inputs_of_targets_.empty() ? channels + c : inputs_of_targets_[static_cast<std::size_t>(c)];
        const FieldNumbers& known = numbers[static_cast<std::size_t>(position)];
        if (!predicts_values && known.differences.count == 0) {
          throw ConfigError(rule.statistics_cited + ": there are no statistics of the differences of '" +
                            known.channel + "', which data.predict needs");
        }
        map = affine(predicts_values ? known.values : known.differences);
      }
      scaling.target_shift.push_back(map.shift);
      scaling.target_scale.push_back(map.scale);
    }
  }
  return scaling;
}

Task FieldDataset::task() const { return task_with(given_ ? given() : std::vector<FieldNumbers>()); }

Task FieldDataset::task_with(const std::vector<FieldNumbers>& numbers) const {
  Task task{.sample_shape = shape_with(std::ssize(input_names())),
            .classes = target_channels(),
            .kind = TaskKind::regression};
  if (description_.classes > 0) {
    task.kind = TaskKind::segmentation;
    task.classes = description_.classes;
    task.predictions_per_sample = points_of(description_.space);
  }
  const std::int64_t passes = rollout_.is_measured ? rollout_.passes : 1;
  task.classes *= passes;
  for (std::int64_t step = 1; step <= description_.rule.steps_out * passes; ++step) {
    const std::string suffix = step == 1 && !rollout_.is_measured ? "" : "@" + std::to_string(step);
    for (const FieldVariable& variable : description_.pairs.front().targets.variables) {
      for (const std::string& name : variable.names) {
        task.fields.channels.push_back(name + suffix);
        task.fields.units.push_back(variable.units);
      }
    }
  }
  for (const SpaceAxis& axis : description_.space) {
    task.fields.axes.push_back(axis.name);
    task.fields.coordinates.push_back(axis.coordinates);
    task.fields.axis_units.push_back(axis.unit);
  }
  task.fields.inputs = input_names();
  task.fields.scaling = scaling(numbers);
  return task;
}

std::int64_t FieldDataset::parts() const { return statistics_ ? statistics_->parts() : 0; }

std::int64_t FieldDataset::numbers_per_part() const { return statistics_ ? statistics_->numbers_per_part() : 0; }

std::vector<double> FieldDataset::measure(std::int64_t part) const { return statistics_->measure(part); }

MeasuredTask FieldDataset::result(const std::vector<std::vector<double>>& parts) const {
  std::vector<FieldNumbers> numbers = statistics_->joined(parts);
  share_deviations(numbers, description_.normalization);
  MeasuredTask measured{.task = task_with(numbers),
                        .json = statistics_text(numbers, description_.rule.lead),
                        .notes = statistics_->range_warnings(parts)};
  for (const FieldNumbers& each : numbers) {
    if (description_.normalization.floor < 0 && is_constant(each.values)) {
      measured.notes.push_back("the channel '" + each.channel + "' is constant in the training data (" +
                               number_text(each.values.mean) + "), so that it is 0 after normalization");
    }
  }
  return measured;
}

std::string FieldDataset::stated_statistics() const {
  return given_ ? statistics_text(given(), description_.rule.lead) : "";
}

std::string FieldDataset::cache_path() const {
  const NormalizationRule& rule = description_.normalization;
  if (!statistics_ || rule.cache.empty()) return "";
  std::string key = "statistics of fields " + std::to_string(digest_) + (rule.weighs_area ? " by area" : "");
  for (const FieldPair& pair : description_.pairs) {
    for (const std::string& path : {pair.inputs.path, pair.targets.path}) {
      std::error_code unknown;  // counts as a time of its own
      key += " " + std::filesystem::absolute(path).string() + " " +
             std::to_string(std::filesystem::last_write_time(path, unknown).time_since_epoch().count());
    }
  }
  for (const FieldSeries& series : description_.series) {
    key += " " + std::to_string(series.begin) + "-" + std::to_string(series.end);
  }
  return data::cache_path(rule.cache, key, ".statistics");
}

}  // namespace lockstep::data
