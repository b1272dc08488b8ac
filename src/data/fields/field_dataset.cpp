// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_dataset.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include "core/text/text.hpp"
#include "data/source/hash.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

std::uint64_t hash_of_text(const std::string& text) {
  return hash_of({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

/// A digest of what the samples are: names and shapes of arrays, sizes of files, and the windows.
std::uint64_t digest_of(const FieldDescription& description) {
  std::uint64_t digest = 0;
  const auto add = [&digest](std::uint64_t number) { digest = hash_of({digest, number}); };
  const auto add_file = [&](const FieldFile& file) {
    std::error_code unknown;  // counts as no bytes
    add(std::filesystem::file_size(file.path, unknown));
    for (const FieldVariable& variable : file.variables) {
      add(hash_of_text(variable.info.path + " " + variable.axes.letters));
      for (const std::int64_t size : variable.info.shape) add(static_cast<std::uint64_t>(size));
      for (const std::int64_t channel : variable.channels) add(static_cast<std::uint64_t>(channel));
      for (const std::int64_t position : variable.axes.fixed) add(static_cast<std::uint64_t>(position));
    }
  };
  for (const FieldPair& pair : description.pairs) {
    add_file(pair.inputs);
    add_file(pair.targets);
  }
  for (const SpaceAxis& axis : description.space) {
    for (const std::int64_t number : {axis.part.begin, axis.part.end, axis.part.step}) {
      add(static_cast<std::uint64_t>(number));
    }
  }
  const WindowRule& rule = description.rule;
  for (const std::int64_t number : {rule.steps_in, rule.steps_out, rule.stride, rule.lead, description.classes}) {
    add(static_cast<std::uint64_t>(number));
  }
  for (const FieldSeries& series : description.series) {
    for (const std::int64_t trajectory : series.trajectories) add(static_cast<std::uint64_t>(trajectory));
    for (const std::int64_t start : series.starts) add(static_cast<std::uint64_t>(start));
  }
  return digest;
}

/// The number of the file in a series that has a step.
std::size_t file_of(const FieldSeries& series, std::int64_t step) {
  return static_cast<std::size_t>(std::ranges::upper_bound(series.begins, step) - series.begins.begin()) - 1;
}

/// Sets gaps to zero and clears their marks.
/// @param marks  null = they are not wanted
void fill_gaps(float* values, std::int64_t count, bool* marks) {
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_gap = std::isnan(values[i]);
    if (marks != nullptr) marks[i] = !is_gap;
    if (is_gap) values[i] = 0;
  }
}

}  // namespace

FieldDataset::FieldDataset(FieldDescription description, std::shared_ptr<arrays::OpenFiles> files)
    : description_(std::move(description)), files_(std::move(files)), digest_(digest_of(description_)) {
  for (const FieldSeries& series : description_.series) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + series.samples());
  }
}

std::int64_t FieldDataset::input_channels() const {
  const std::int64_t fields = description_.rule.steps_in * description_.pairs.front().inputs.channels();
  return (fields + std::ssize(description_.static_names)) * (description_.has_gap_channel ? 2 : 1);
}

std::int64_t FieldDataset::target_channels() const {
  return description_.rule.steps_out * description_.pairs.front().targets.channels();
}

std::vector<std::int64_t> FieldDataset::shape_with(std::int64_t channels) const {
  std::vector<std::int64_t> shape = {channels};
  for (const SpaceAxis& axis : description_.space) shape.push_back(axis.count());
  return shape;
}

Task FieldDataset::task() const {
  Task task{.sample_shape = shape_with(input_channels()), .classes = target_channels(), .kind = TaskKind::regression};
  if (description_.classes > 0) {
    task.kind = TaskKind::segmentation;
    task.classes = description_.classes;
    task.predictions_per_sample = points_of(description_.space);
  }
  for (std::int64_t step = 1; step <= description_.rule.steps_out; ++step) {
    const std::string suffix = step == 1 ? "" : "@" + std::to_string(step);
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
  }
  return task;
}

SampleLayout FieldDataset::layout() const {
  std::vector<Field> fields = {{.name = "data", .shape = shape_with(input_channels())}};
  if (description_.classes > 0) {
    std::vector<std::int64_t> shape = shape_with(1);
    shape.erase(shape.begin());
    fields.push_back({.name = "label", .shape = shape, .dtype = at::kLong});
  } else if (has_targets()) {
    fields.push_back({.name = "label", .shape = shape_with(target_channels())});
    if (description_.fills_gaps) {
      fields.push_back({.name = "mask", .shape = shape_with(target_channels()), .dtype = at::kBool});
    }
  }
  return {.fields = std::move(fields)};
}

FieldPlace FieldDataset::place(std::int64_t index) const {
  const auto end = std::ranges::upper_bound(ends_, index);
  const FieldSeries& series = description_.series[static_cast<std::size_t>(end - ends_.begin())];
  const std::int64_t row = index - (*end - series.samples());
  const std::int64_t start = series.starts[static_cast<std::size_t>(row % std::ssize(series.starts))];
  const std::size_t file = file_of(series, start);
  return {.file = series.files[file],
          .trajectory = series.trajectories[static_cast<std::size_t>(row / std::ssize(series.starts))],
          .start = start - series.begins[file]};
}

std::string FieldDataset::sample_name(std::int64_t index) const {
  const FieldPlace where = place(index);
  const FieldFile& file = description_.pairs[where.file].inputs;
  std::string name = std::filesystem::path(file.path).filename().string();
  if (file.trajectories > 1) name += ":" + std::to_string(where.trajectory);
  return file.has_time ? name + "@" + std::to_string(where.start) : name;
}

ChunkSize chunk_size_of(const FieldVariable& variable) {
  const std::vector<std::int64_t>& chunk = variable.info.storage.chunk;
  ChunkSize size;
  if (chunk.empty()) return size;
  if (variable.axes.trajectory) size.trajectories = chunk[*variable.axes.trajectory];
  if (variable.axes.time) size.steps = chunk[*variable.axes.time];
  return size;
}

std::vector<std::int64_t> FieldDataset::chunks() const {
  using ChunkPlace = std::array<std::int64_t, 3>;  // file, and position along both axes
  std::map<ChunkPlace, std::int64_t> numbers;
  std::vector<std::int64_t> chunks;
  for (const FieldSeries& series : description_.series) {
    for (const std::int64_t trajectory : series.trajectories) {
      for (const std::int64_t start : series.starts) {
        const std::size_t file = file_of(series, start);
        const ChunkSize size = chunk_size_of(description_.pairs[series.files[file]].inputs.variables.front());
        const ChunkPlace place = {static_cast<std::int64_t>(series.files[file]), trajectory / size.trajectories,
                                  (start - series.begins[file]) / size.steps};
        chunks.push_back(numbers.try_emplace(place, std::ssize(numbers)).first->second);
      }
    }
  }
  return chunks;
}

ChunkBytes FieldDataset::chunk_bytes() const {
  const arrays::ChunkUse use = arrays::chunk_use();
  return {.unpacked = static_cast<double>(use.unpacked), .used = static_cast<double>(use.used)};
}

void FieldDataset::read_window(const FieldSeries& series, std::int64_t trajectory,
                               const std::vector<std::int64_t>& steps, bool are_targets, float* out) const {
  const std::int64_t points = points_of(description_.space);
  const std::int64_t stride = description_.rule.stride;
  for (std::size_t k = 0; k < steps.size();) {
    const std::size_t number = file_of(series, steps[k]);
    const std::size_t begin = k;
    while (k < steps.size() && file_of(series, steps[k]) == number) ++k;
    const FieldPair& pair = description_.pairs[series.files[number]];
    const FieldFile& file = are_targets ? pair.targets : pair.inputs;
    const auto open = files_->get(file.path);
    const std::int64_t pitch = file.channels() * points;
    float* target = out + static_cast<std::int64_t>(begin) * pitch;
    for (const FieldVariable& variable : file.variables) {
      read_steps(*open, variable, trajectory, steps[begin] - series.begins[number],
                 static_cast<std::int64_t>(k - begin), stride, description_.space, target, pitch);
      target += std::ssize(variable.channels) * points;
    }
    if (description_.fills_gaps || (are_targets && description_.classes > 0)) continue;
    const float* first = out + static_cast<std::int64_t>(begin) * pitch;
    const auto count = static_cast<std::int64_t>(k - begin) * pitch;
    const float* gap = std::find_if(first, first + count, [](float value) { return std::isnan(value); });
    if (gap == first + count) continue;
    const std::int64_t step = steps[begin + static_cast<std::size_t>((gap - first) / pitch)] - series.begins[number];
    throw DataError(file.path, "there is no value (NaN or a fill value) at step " + std::to_string(step) +
                                   " of trajectory " + std::to_string(trajectory) +
                                   "; set data.gaps = zero to train without these points");
  }
}

void FieldDataset::fill(const batch::Draw& draw, batch::ValueMap& row) const {
  check_indices(std::span(&draw, 1), size());
  const auto end = std::ranges::upper_bound(ends_, draw.index);
  const FieldSeries& series = description_.series[static_cast<std::size_t>(end - ends_.begin())];
  const std::int64_t number = draw.index - (*end - series.samples());
  const std::int64_t start = series.starts[static_cast<std::size_t>(number % std::ssize(series.starts))];
  const std::int64_t trajectory = series.trajectories[static_cast<std::size_t>(number / std::ssize(series.starts))];
  const auto tensor = [&row](const char* name) { return row.at(name).as<at::Tensor>(); };

  auto* const input = tensor("data").mutable_data_ptr<float>();
  const std::int64_t points = points_of(description_.space);
  const std::int64_t input_count = (description_.rule.steps_in * description_.pairs.front().inputs.channels() +
                                    std::ssize(description_.static_names)) *
                                   points;
  read_window(series, trajectory, description_.rule.input_steps(start), false, input);
  std::ranges::copy(description_.statics, input + input_count - std::ssize(description_.statics));
  if (description_.has_gap_channel) {
    for (std::int64_t i = 0; i < input_count; ++i) input[input_count + i] = std::isnan(input[i]) ? 0.F : 1.F;
  }
  if (description_.fills_gaps) fill_gaps(input, input_count, nullptr);
  if (!has_targets()) return;

  const std::vector<std::int64_t> steps = description_.rule.target_steps(start);
  if (description_.classes == 0) {
    auto* const target = tensor("label").mutable_data_ptr<float>();
    read_window(series, trajectory, steps, true, target);
    if (description_.fills_gaps) {
      fill_gaps(target, target_channels() * points, tensor("mask").mutable_data_ptr<bool>());
    }
    return;
  }
  std::vector<float> stored(static_cast<std::size_t>(points));
  read_window(series, trajectory, steps, true, stored.data());
  auto* const target = tensor("label").mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const float value = stored[i];
    if (!std::isnan(value) &&
        (value < 0 || value >= static_cast<float>(description_.classes) || value != std::floor(value))) {
      throw DataError(description_.pairs[series.files[file_of(series, start)]].targets.path,
                      "the target " + number_text(value) +
                          " is no class; data.classes = " + std::to_string(description_.classes) + " allows 0 to " +
                          std::to_string(description_.classes - 1));
    }
    target[i] = std::isnan(value) ? kIgnored : static_cast<std::int64_t>(value);
  }
}

}  // namespace lockstep::data
