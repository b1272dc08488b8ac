// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/field_views.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "core/text/text.hpp"
#include "engine/evaluation/color_maps.hpp"

namespace lockstep::engine {

namespace {

using metrics::Grid;

constexpr std::size_t kUsualChannels = 3;
constexpr std::size_t kMaxPictureCells = 1 << 16;
constexpr std::size_t kLongestLine = 1000;       // points of a line
constexpr std::size_t kMaxErrorCells = 1 << 14;  // their sums take 19 MB for each channel
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// "t2m [K]".
std::string with_unit(const std::string& name, const std::string& unit) {
  return unit.empty() ? name : name + " [" + unit + "]";
}

/// The name of an artifact, which belongs to the group of the evaluation.
std::string artifact_name(const std::string& kind, const std::string& channel) {
  std::string name = kind + "_" + channel;
  std::ranges::replace(name, '/', '.');
  return name;
}

/// The range of the finite values of several grids; [0, 0] of none.
std::pair<double, double> range_of(std::initializer_list<std::span<const double>> grids) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const auto& values : grids) {
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return low <= high ? std::pair(low, high) : std::pair(0.0, 0.0);
}

/// @param values  rows from the top
Picture picture_of_field(const Grid& shape, std::span<const double> values, ColorMap map, const ColorScale& scale) {
  Picture picture{.height = static_cast<std::int64_t>(shape.rows),
                  .width = static_cast<std::int64_t>(shape.columns),
                  .scale = scale};
  picture.scale->colors = texts_of(map);
  const double width = scale.high - scale.low;
  for (const double value : values) {
    const double share = !std::isfinite(value) ? kNan : width > 0 ? (value - scale.low) / width : 0.5;
    const MapColor color = color_at(map, share);
    picture.pixels.insert(picture.pixels.end(), color.begin(), color.end());
  }
  return picture;
}

void put_picture(EventStorage& events, Picture picture, const std::string& name, const std::string& caption) {
  picture.name = name;
  picture.caption = caption;
  events.put(std::move(picture));
}

/// Numbers of a chart need no more digits than a reader can see.
double rounded(double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const double scale = std::pow(10.0, 6 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

/// A chart of lines over the first column.
void put_lines(EventStorage& events, const std::string& name, const std::string& title,
               const std::vector<std::pair<std::string, std::vector<double>>>& columns) {
  Table table{.name = name, .columns = columns.size(), .title = title};
  for (const auto& [column, values] : columns) table.names.push_back(column);
  for (std::size_t row = 0; row < columns.front().second.size(); ++row) {
    for (const auto& [column, values] : columns) table.values.push_back(rounded(values[row]));
  }
  events.put(std::move(table));
}

std::vector<double> differences(std::span<const double> prediction, std::span<const double> target) {
  std::vector<double> errors(target.size());
  std::ranges::transform(prediction, target, errors.begin(), std::minus<>());
  return errors;
}

/// The power of a field, in which gaps have the mean of the other values.
std::vector<double> power_of(const at::Tensor& field, const at::Tensor& is_gap) {
  const at::Tensor valid = field.masked_select(is_gap.logical_not());
  if (valid.numel() == 0) return {};
  return metrics::radial_power(field.masked_fill(is_gap, valid.mean().item<double>()));
}

void add_power(std::vector<metrics::ExactSum>& sums, std::span<const double> power) {
  if (power.empty()) return;
  for (std::size_t k = 0; k < sums.size(); ++k) sums[k].add(power[k]);
}

void sum_over_ranks(std::vector<metrics::ExactSum>& sums, mpi::Collectives& collectives) {
  constexpr std::size_t kWords = metrics::ExactSum::kWords;
  std::vector<std::int64_t> words(sums.size() * kWords);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].store(std::span(words).subspan(i * kWords, kWords));
  collectives.all_reduce(words.data(), words.size(), DType::int64, mpi::ReduceOp::sum);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = metrics::ExactSum(std::span<const std::int64_t>(words).subspan(i * kWords, kWords));
  }
}

/// The numbers of the channels that are shown.
std::vector<std::size_t> chosen_channels(const std::vector<std::string>& names, const LogSettings& settings) {
  std::vector<std::size_t> chosen(std::min(kUsualChannels, names.size()));
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  if (settings.fields.value.empty()) return chosen;
  chosen.clear();
  for (const std::string& name : split_list(settings.fields.value, ',')) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      throw ConfigError(settings.fields.cite + ": the targets have no channel '" + name + "'; their channels are " +
                        joined(names));
    }
    chosen.push_back(static_cast<std::size_t>(found - names.begin()));
  }
  return chosen;
}

}  // namespace

FieldViews::FieldViews(const Task& task, const LogSettings& settings) {
  const FieldTask& fields = task.fields;
  const bool has_fields = task.kind == TaskKind::regression && !fields.channels.empty() && !fields.axes.empty();
  if (!has_fields) {
    if (settings.fields.value.empty()) return;
    throw ConfigError(settings.fields.cite + ": the targets are no fields; remove the key");
  }
  if (settings.field_samples == 0) return;
  max_samples_ = settings.field_samples;
  space_.assign(task.sample_shape.begin() + 1, task.sample_shape.end());
  axis_ = fields.axes.back();
  target_channels_ = std::ssize(fields.channels);
  masks_inputs_ = !fields.scaling.fills_gaps;
  if (!fields.coordinates.empty()) coordinates_ = fields.coordinates.back();
  view_ = MapView(fields);

  const bool is_map = space_.size() > 1;
  const Grid whole{.rows = is_map ? static_cast<std::size_t>(space_.at(view_.row_axis())) : 1,
                   .columns = static_cast<std::size_t>(is_map ? space_.at(view_.column_axis()) : space_.back())};
  shown_size_ = metrics::cell_size(whole, whole.rows > 1 ? kMaxPictureCells : kLongestLine, kMaxPictureCells);
  errors_size_ = metrics::cell_size(whole, std::max(whole.rows, whole.columns), kMaxErrorCells);
  const auto cells_of = [&](std::size_t size) {
    return Grid{.rows = (whole.rows + size - 1) / size, .columns = (whole.columns + size - 1) / size};
  };
  shown_ = cells_of(shown_size_);
  cells_ = cells_of(errors_size_);

  const FieldScaling& scaling = fields.scaling;
  const auto waves = static_cast<std::size_t>(*std::ranges::max_element(space_) / 2 + 1);
  for (const std::size_t c : chosen_channels(fields.channels, settings)) {
    ShownChannel channel{.name = fields.channels[c],
                         .unit = c < fields.units.size() ? fields.units[c] : "",
                         .target = static_cast<std::int64_t>(c),
                         .errors = metrics::ErrorMap(errors_size_)};
    if (!scaling.fed_back.empty()) {
      channel.input =
          (scaling.input_steps - 1) * scaling.input_channels + scaling.fed_back[c % scaling.fed_back.size()];
    }
    channel.target_power.resize(waves);
    channel.prediction_power.resize(waves);
    channels_.push_back(std::move(channel));
  }
}

/// @param field  [space...] float64 on the CPU
Grid FieldViews::grid_of(const at::Tensor& field) const {
  at::Tensor shown = view_.of(field);
  if (shown.dim() == 1) shown = shown.unsqueeze(0);
  shown = shown.contiguous();
  const double* const begin = shown.const_data_ptr<double>();
  return {.rows = static_cast<std::size_t>(shown.size(0)),
          .columns = static_cast<std::size_t>(shown.size(1)),
          .values = {begin, begin + shown.numel()}};
}

void FieldViews::add(const LastBatch& last) {
  if (!is_used() || last.outputs.is_empty() || !last.batch->has_target()) return;
  if (!last.batch->at(last.batch->target_key()).is<at::Tensor>()) return;
  const batch::Value& given = last.given->at(last.given->input_key());
  const at::Tensor& output = last.outputs.main();
  const at::Tensor& target = last.batch->target();
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(last.given->draws().size()), target_channels_};
  shape.insert(shape.end(), space_.begin(), space_.end());
  if (output.sizes() != at::IntArrayRef(shape) || target.sizes() != output.sizes()) return;
  const auto field_in = [](const at::Tensor& batch, std::int64_t sample, std::int64_t channel) {
    return batch[sample][channel].detach().to(at::kCPU, at::kDouble);
  };
  for (std::int64_t sample = 0; sample < shape.front(); ++sample) {
    const std::int64_t index = last.given->draws()[static_cast<std::size_t>(sample)].index;
    const bool is_shown = index < max_samples_;
    metrics::Samples views{.indices = {index}, .outputs = {}, .targets = {}};
    for (ShownChannel& channel : channels_) {
      at::Tensor goal = field_in(target, sample, channel.target);
      at::Tensor is_gap = goal.isnan();
      if (last.batch->has("mask")) {
        is_gap = is_gap.logical_or(field_in(last.batch->tensor("mask"), sample, channel.target).eq(0));
      }
      goal = goal.masked_fill(is_gap, kNan);
      const at::Tensor prediction = field_in(output, sample, channel.target).masked_fill(is_gap, kNan);
      channel.errors.add(grid_of(prediction - goal));
      add_power(channel.target_power, power_of(goal, is_gap));
      add_power(channel.prediction_power, power_of(prediction, is_gap));
      if (!is_shown) continue;
      at::Tensor input = at::full_like(goal, kNan);
      if (channel.input >= 0 && given.is<at::Tensor>()) {
        input = field_in(given.as<at::Tensor>(), sample, channel.input);
        if (masks_inputs_) input = input.masked_fill(is_gap, kNan);
      }
      const auto keep = [&](const at::Tensor& field, std::vector<double>& values) {
        const Grid view = metrics::reduced(grid_of(field), shown_size_);
        values.insert(values.end(), view.values.begin(), view.values.end());
      };
      keep(input, views.outputs);
      keep(prediction, views.outputs);
      keep(goal, views.targets);
    }
    ++count_;
    if (!is_shown) continue;
    views.output_columns = views.outputs.size();
    views.target_columns = views.targets.size();
    metrics::append(kept_, views);
  }
}

void FieldViews::gather(mpi::Collectives& collectives) {
  if (!is_used()) return;
  kept_ = metrics::unpack(collectives.all_gather_any(metrics::pack(kept_)));
  collectives.all_reduce(&count_, 1, DType::int64, mpi::ReduceOp::sum);
  for (ShownChannel& channel : channels_) {
    std::vector<std::int64_t> words = channel.errors.words(cells_.rows * cells_.columns);
    collectives.all_reduce(words.data(), words.size(), DType::int64, mpi::ReduceOp::sum);
    channel.errors.set_words(words);
    sum_over_ranks(channel.target_power, collectives);
    sum_over_ranks(channel.prediction_power, collectives);
  }
}

/// The coordinates of `size` points or cells along the last axis, or their numbers.
std::vector<double> FieldViews::coordinates(std::size_t size) const {
  std::vector<double> points = coordinates_;
  if (std::ssize(points) != space_.back()) {
    points.resize(static_cast<std::size_t>(space_.back()));
    std::iota(points.begin(), points.end(), 0);
  }
  return metrics::reduced({.columns = points.size(), .values = points}, size).values;
}

void FieldViews::put_in(EventStorage& events, const data::Dataset& dataset) const {
  if (count_ == 0) return;
  for (std::size_t sample = 0; sample < kept_.size(); ++sample) {
    const std::string id = utf8_text(data::sample_name_of(dataset, kept_.indices[sample]));
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      put_sample(events, sample, c,
                 with_unit(channels_[c].name, channels_[c].unit) + ", sample " + std::to_string(kept_.indices[sample]) +
                     (id.empty() ? "" : ": " + id));
    }
  }
  for (const ShownChannel& channel : channels_) put_errors(events, channel);
  for (const ShownChannel& channel : channels_) put_spectrum(events, channel);
}

void FieldViews::put_sample(EventStorage& events, std::size_t sample, std::size_t c, const std::string& title) const {
  const ShownChannel& channel = channels_[c];
  const std::size_t cells = shown_.rows * shown_.columns;
  const auto input = kept_.output(sample).subspan(2 * c * cells, cells);
  const auto prediction = kept_.output(sample).subspan((2 * c + 1) * cells, cells);
  const auto target = kept_.target(sample).subspan(c * cells, cells);
  const std::string kind = fmt::format("field_{:02}", kept_.indices[sample]);
  const bool has_input = channel.input >= 0;
  if (space_.size() == 1) {
    std::vector<std::pair<std::string, std::vector<double>>> columns = {
        {axis_, coordinates(shown_size_)},
        {"target", {target.begin(), target.end()}},
        {"prediction", {prediction.begin(), prediction.end()}}};
    if (has_input) columns.emplace_back("input", std::vector<double>(input.begin(), input.end()));
    return put_lines(events, artifact_name(kind, channel.name), title, columns);
  }
  const auto [low, high] = range_of({input, target, prediction});
  const ColorScale scale{.group = title, .low = low, .high = high, .unit = channel.unit};
  const auto put = [&](std::span<const double> values, const std::string& caption) {
    put_picture(events, picture_of_field(shown_, values, sequential_map(), scale),
                artifact_name(kind, channel.name + "_" + caption), caption);
  };
  if (has_input) put(input, "input");
  put(target, "target");
  put(prediction, "prediction");
  const std::vector<double> errors = differences(prediction, target);
  const auto [least, largest] = range_of({errors});
  const double bound = std::max(std::abs(least), std::abs(largest));
  put_picture(events,
              picture_of_field(shown_, errors, diverging_map(),
                               {.group = title, .low = -bound, .high = bound, .unit = channel.unit}),
              artifact_name(kind, channel.name + "_error"), "error");
}

void FieldViews::put_errors(EventStorage& events, const ShownChannel& channel) const {
  const std::string title =
      with_unit(channel.name, channel.unit) + ", errors of " + std::to_string(count_) + " samples";
  const std::vector<double> bias = channel.errors.bias();
  const std::vector<double> rmse = channel.errors.rmse();
  if (space_.size() == 1) {
    return put_lines(events, artifact_name("errors", channel.name), title,
                     {{axis_, coordinates(errors_size_)}, {"mean error", bias}, {"rmse", rmse}});
  }
  const auto [least, largest] = range_of({bias});
  const double bound = std::max(std::abs(least), std::abs(largest));
  ColorScale scale{.group = title, .low = -bound, .high = bound, .unit = channel.unit};
  put_picture(events, picture_of_field(cells_, bias, diverging_map(), scale), artifact_name("bias", channel.name),
              "mean error");
  scale.low = 0;
  scale.high = range_of({rmse}).second;
  put_picture(events, picture_of_field(cells_, rmse, sequential_map(), scale), artifact_name("rmse", channel.name),
              "rmse");
}

/// The power of the whole waves from k = 1 on; the mean of the values is not drawn.
void FieldViews::put_spectrum(EventStorage& events, const ShownChannel& channel) const {
  const auto means = [&](const std::vector<metrics::ExactSum>& sums) {
    std::vector<double> values;
    for (std::size_t k = 1; k < sums.size(); ++k) values.push_back(sums[k].value() / static_cast<double>(count_));
    return values;
  };
  std::vector<double> waves(channel.target_power.size() - 1);
  if (waves.empty()) return;
  std::iota(waves.begin(), waves.end(), 1);
  const std::string unit = channel.unit.empty() ? "" : "(" + channel.unit + ")²";
  put_lines(events, artifact_name("spectrum", channel.name),
            with_unit("power of " + channel.name, unit) + ", " + std::to_string(count_) + " samples",
            {{"wave number", waves},
             {"target", means(channel.target_power)},
             {"prediction", means(channel.prediction_power)}});
}

}  // namespace lockstep::engine
