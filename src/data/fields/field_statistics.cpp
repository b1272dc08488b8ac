// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_statistics.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/numbers/latitudes.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kMaxParts = 256;
constexpr std::int64_t kNumbersAtOnce = 1 << 20;
constexpr std::int64_t kNumbersOfMoments = 6;
constexpr std::int64_t kNumbersOfChannel = 2 * kNumbersOfMoments + 1;

void append(std::vector<double>& numbers, const RunningMoments& moments) {
  numbers.insert(numbers.end(),
                 {moments.count, moments.weight, moments.mean, moments.squares, moments.least, moments.most});
}

RunningMoments moments_from(const double* numbers) {
  return {.count = numbers[0],
          .weight = numbers[1],
          .mean = numbers[2],
          .squares = numbers[3],
          .least = numbers[4],
          .most = numbers[5]};
}

/// The weight of each point by the latitude of its row; empty = 1.
std::vector<double> weights_of_points(const FieldDescription& description) {
  if (!description.normalization.weighs_area) return {};
  FieldTask fields;
  for (const SpaceAxis& axis : description.space) {
    fields.axes.push_back(axis.name);
    fields.coordinates.push_back(axis.coordinates);
    fields.axis_units.push_back(axis.unit);
  }
  const std::optional<RowWeights> rows = row_weights("true", fields, description.normalization.area_cited);
  if (!rows) return {};
  std::int64_t inner = 1;  // points of a row
  for (std::size_t axis = rows->axis + 1; axis < description.space.size(); ++axis) {
    inner *= description.space[axis].count();
  }
  std::vector<double> weights(static_cast<std::size_t>(points_of(description.space)));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = rows->weights[i / static_cast<std::size_t>(inner) % rows->weights.size()];
  }
  return weights;
}

}  // namespace

void RunningMoments::add(const RunningMoments& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  const double total = weight + other.weight;
  const double difference = other.mean - mean;
  mean += difference * (other.weight / total);
  squares += other.squares + difference * difference * (weight * other.weight / total);
  weight = total;
  count += other.count;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
}

ChannelNumbers RunningMoments::numbers() const {
  if (count == 0) return {};
  const double variance = squares / weight;
  return {.count = count,
          .mean = mean,
          .std = std::sqrt(variance),
          .rms = std::sqrt(variance + mean * mean),
          .min = least,
          .max = most};
}

RunningMoments moments_of(const double* values, std::int64_t steps, std::int64_t pitch, std::int64_t points,
                          std::span<const double> weights) {
  const auto weight = [&](std::int64_t i) { return weights.empty() ? 1.0 : weights[static_cast<std::size_t>(i)]; };
  const auto for_each = [&](const auto& use) {
    for (std::int64_t k = 0; k < steps; ++k) {
      for (std::int64_t i = 0; i < points; ++i) {
        const double value = values[k * pitch + i];
        if (!std::isnan(value)) use(value, weight(i));
      }
    }
  };
  RunningMoments moments;
  double sum = 0;
  for_each([&](double value, double share) {
    moments.count += 1;
    moments.weight += share;
    sum += share * value;
    moments.least = std::min(moments.least, value);
    moments.most = std::max(moments.most, value);
  });
  if (moments.count == 0) return moments;
  moments.mean = sum / moments.weight;
  for_each(
      [&](double value, double share) { moments.squares += share * (value - moments.mean) * (value - moments.mean); });
  return moments;
}

std::vector<std::int64_t> inputs_of_targets(const FieldDescription& description) {
  const FieldPair& pair = description.pairs.front();
  if (pair.inputs.path != pair.targets.path || description.classes > 0) return {};
  std::vector<std::int64_t> positions;
  for (const FieldVariable& target : pair.targets.variables) {
    for (std::size_t i = 0; i < target.channels.size(); ++i) {
      std::int64_t position = 0;
      bool is_found = false;
      for (const FieldVariable& input : pair.inputs.variables) {
        const bool is_same = input.info.path == target.info.path && input.axes.fixed == target.axes.fixed;
        const auto channel = std::ranges::find(input.channels, target.channels[i]);
        if (is_same && channel != input.channels.end()) {
          positions.push_back(position + (channel - input.channels.begin()));
          is_found = true;
          break;
        }
        position += std::ssize(input.channels);
      }
      if (!is_found) return {};
    }
  }
  return positions;
}

FieldStatistics::FieldStatistics(const FieldDescription& description, std::shared_ptr<arrays::OpenFiles> files)
    : description_(description),
      files_(std::move(files)),
      measures_targets_(description.rule.steps_out > 0 && description.classes == 0 &&
                        inputs_of_targets(description).empty()),
      weights_(weights_of_points(description)) {
  for (std::size_t i = 0; i < description_.series.size(); ++i) add_blocks(i);
  parts_ = std::min(kMaxParts, static_cast<std::int64_t>(blocks_.size()));
}

/// Rows of arrays without time are read many at once.
bool FieldStatistics::are_rows(const FieldSeries& series) const {
  if (series.files.size() != 1) return false;
  const FieldPair& pair = description_.pairs[series.files.front()];
  const auto is_row = [](const FieldVariable& variable) {
    return variable.axes.trajectory && !variable.axes.time && !variable.repeats[*variable.axes.trajectory];
  };
  return !pair.inputs.has_time && !pair.targets.has_time && std::ranges::all_of(pair.inputs.variables, is_row) &&
         std::ranges::all_of(pair.targets.variables, is_row);
}

void FieldStatistics::add_blocks(std::size_t number) {
  const FieldSeries& series = description_.series[number];
  const FieldPair& pair = description_.pairs[series.files.front()];
  const std::int64_t size = std::max(pair.inputs.channels(), pair.targets.channels()) * points_of(description_.space);
  const std::int64_t at_once = std::max<std::int64_t>(1, kNumbersAtOnce / std::max<std::int64_t>(size, 1));
  const auto add = [&](std::int64_t trajectory, std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += at_once) {
      blocks_.push_back(
          {.series = number, .trajectory = trajectory, .begin = begin, .end = std::min(begin + at_once, end)});
    }
  };
  if (!are_rows(series)) {
    for (const std::int64_t trajectory : series.trajectories) add(trajectory, series.begin, series.end);
    return;
  }
  const std::vector<std::int64_t>& rows = series.trajectories;
  for (std::size_t first = 0, i = 1; i <= rows.size(); ++i) {
    if (i < rows.size() && rows[i] == rows[i - 1] + 1) continue;
    add(0, rows[first], rows[i - 1] + 1);
    first = i;
  }
}

std::int64_t FieldStatistics::numbers_per_part() const {
  const FieldPair& pair = description_.pairs.front();
  const std::int64_t channels = pair.inputs.channels() + (measures_targets_ ? pair.targets.channels() : 0);
  return channels * kNumbersOfChannel;
}

/// The steps or rows [first, block.end).
std::vector<double> FieldStatistics::read_block(const StepBlock& block, std::int64_t first, bool are_targets) const {
  const FieldSeries& series = description_.series[block.series];
  const FieldPair& pair = description_.pairs[series.files.front()];
  const FieldFile& file = are_targets ? pair.targets : pair.inputs;
  const std::int64_t pitch = file.channels() * points_of(description_.space);
  std::vector<double> values(static_cast<std::size_t>((block.end - first) * pitch));
  if (!are_rows(series)) {
    std::vector<std::int64_t> steps(static_cast<std::size_t>(block.end - first));
    std::iota(steps.begin(), steps.end(), first);
    read_series(description_, *files_, series, block.trajectory, steps, 1, are_targets, values.data());
    return values;
  }
  const auto open = files_->get(file.path);
  double* out = values.data();
  for (FieldVariable variable : file.variables) {
    variable.axes.time = std::exchange(variable.axes.trajectory, std::nullopt);
    read_steps(*open, variable, 0, first, block.end - first, 1, description_.space, out, pitch);
    out += std::ssize(variable.channels) * points_of(description_.space);
  }
  require_values<double>(description_, file, are_targets, values,
                         [first](std::int64_t row) { return "row " + std::to_string(first + row); });
  return values;
}

void FieldStatistics::count_outside(const double* values, std::int64_t steps, const FieldFile& file,
                                    std::int64_t trajectory, std::span<Channel> channels) const {
  const std::int64_t points = points_of(description_.space);
  const std::int64_t pitch = std::ssize(channels) * points;
  std::size_t number = 0;
  for (const FieldVariable& variable : file.variables) {
    const arrays::Packing& packing = variable.packing_of(trajectory);
    const auto [lowest, highest] =
        std::minmax(packing.lowest * packing.scale + packing.offset, packing.highest * packing.scale + packing.offset);
    for (std::size_t c = 0; c < variable.channels.size(); ++c, ++number) {
      if (!packing.has_range) continue;
      for (std::int64_t step = 0; step < steps; ++step) {
        const double* const of_step = values + step * pitch + static_cast<std::int64_t>(number) * points;
        channels[number].outside += static_cast<double>(
            std::count_if(of_step, of_step + points, [&](double value) { return value < lowest || value > highest; }));
      }
    }
  }
}

void FieldStatistics::measure_block(const StepBlock& block, bool are_targets, std::span<Channel> channels) const {
  const FieldSeries& series = description_.series[block.series];
  const FieldPair& pair = description_.pairs[series.files.front()];
  const FieldFile& file = are_targets ? pair.targets : pair.inputs;
  const std::int64_t points = points_of(description_.space);
  const std::int64_t pitch = std::ssize(channels) * points;
  const std::int64_t lead = file.has_time ? description_.rule.lead : 0;
  const std::int64_t first = lead > 0 ? std::max(block.begin - lead, series.begin) : block.begin;
  const std::vector<double> values = read_block(block, first, are_targets);
  count_outside(values.data() + (block.begin - first) * pitch, block.end - block.begin, file, block.trajectory,
                channels);
  const double* const own = values.data() + (block.begin - first) * pitch;
  std::vector<double> differences(static_cast<std::size_t>(points));
  for (std::int64_t c = 0; c < std::ssize(channels); ++c) {
    Channel& channel = channels[static_cast<std::size_t>(c)];
    channel.values.add(moments_of(own + c * points, block.end - block.begin, pitch, points, weights_));
    if (lead == 0) continue;
    for (std::int64_t t = std::max(block.begin, first + lead); t < block.end; ++t) {
      const bool has_gap = !series.gaps.empty() && std::any_of(series.gaps.begin() + (t - lead),
                                                               series.gaps.begin() + t, [](bool gap) { return gap; });
      if (has_gap) continue;
      const double* const newer = values.data() + (t - first) * pitch + c * points;
      const double* const older = newer - lead * pitch;
      for (std::int64_t i = 0; i < points; ++i) differences[static_cast<std::size_t>(i)] = newer[i] - older[i];
      channel.differences.add(moments_of(differences.data(), 1, points, points, weights_));
    }
  }
}

std::vector<double> FieldStatistics::measure(std::int64_t part) const {
  const FieldPair& pair = description_.pairs.front();
  const auto inputs = static_cast<std::size_t>(pair.inputs.channels());
  std::vector<Channel> channels(static_cast<std::size_t>(numbers_per_part() / kNumbersOfChannel));
  const auto blocks = static_cast<std::int64_t>(blocks_.size());
  for (std::int64_t i = blocks * part / parts_; i < blocks * (part + 1) / parts_; ++i) {
    const StepBlock& block = blocks_[static_cast<std::size_t>(i)];
    measure_block(block, false, std::span(channels).first(inputs));
    if (measures_targets_) measure_block(block, true, std::span(channels).subspan(inputs));
  }
  std::vector<double> numbers;
  for (const Channel& channel : channels) {
    append(numbers, channel.values);
    append(numbers, channel.differences);
    numbers.push_back(channel.outside);
  }
  return numbers;
}

std::vector<std::string> FieldStatistics::channel_names() const {
  std::vector<std::string> names;
  const auto add = [&names](const FieldFile& file) {
    for (const FieldVariable& variable : file.variables) {
      names.insert(names.end(), variable.names.begin(), variable.names.end());
    }
  };
  add(description_.pairs.front().inputs);
  if (measures_targets_) add(description_.pairs.front().targets);
  return names;
}

std::vector<std::string> FieldStatistics::range_warnings(const std::vector<std::vector<double>>& parts) const {
  std::vector<std::string> warnings;
  const std::vector<std::string> names = channel_names();
  for (std::size_t c = 0; c < names.size(); ++c) {
    double outside = 0;
    for (const std::vector<double>& part : parts) outside += part[(c + 1) * kNumbersOfChannel - 1];
    if (outside == 0) continue;
    warnings.push_back("the channel '" + names[c] + "' has " + number_text(outside) +
                       " values outside of the valid_range of its array in the training data; they are used as they "
                       "are");
  }
  return warnings;
}

std::vector<FieldNumbers> FieldStatistics::joined(const std::vector<std::vector<double>>& parts) const {
  std::vector<FieldNumbers> result;
  for (const std::string& name : channel_names()) result.push_back({.channel = name});
  for (std::size_t c = 0; c < result.size(); ++c) {
    Channel channel;
    for (const std::vector<double>& part : parts) {
      const double* const numbers = part.data() + c * kNumbersOfChannel;
      channel.values.add(moments_from(numbers));
      channel.differences.add(moments_from(numbers + kNumbersOfMoments));
    }
    if (channel.values.count == 0) {
      throw DataError(description_.pairs.front().inputs.path,
                      "the channel '" + result[c].channel +
                          "' has no value in the training data, so that there are no statistics; leave it out of "
                          "data.variables");
    }
    result[c].values = channel.values.numbers();
    result[c].differences = channel.differences.numbers();
  }
  return result;
}

}  // namespace lockstep::data
