// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_dataset.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numbers>
#include <utility>

#include "core/text/text.hpp"
#include "data/fields/field_chunks.hpp"
#include "data/source/chunk_bytes.hpp"
#include "data/source/hash.hpp"
#include "data/source/sources.hpp"
#include "data/stores/cache_files.hpp"

namespace lockstep::data {

namespace {

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
      for (const arrays::Packing& packing : variable.group_packings) {
        for (const double number : {packing.scale, packing.offset}) add(std::bit_cast<std::uint64_t>(number));
      }
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

constexpr const char* kPersistence = "persistence";
constexpr const char* kClimatology = "climatology";

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

FieldDataset::FieldDataset(FieldDescription description, std::shared_ptr<arrays::OpenFiles> files,
                           const RolloutRule& rollout, std::shared_ptr<const FieldClimatology> climatology)
    : description_(std::move(description)),
      files_(std::move(files)),
      rollout_(rollout),
      climatology_(std::move(climatology)),
      checked_(description_),
      inputs_of_targets_(inputs_of_targets(description_)),
      digest_(digest_of(description_)) {
  for (const FieldSeries& series : description_.series) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + series.samples());
  }
  const NormalizationRule& rule = description_.normalization;
  if (rule.prediction != FieldPrediction::values && inputs_of_targets_.empty() && has_targets()) {
    throw ConfigError("data.predict: differences need targets that are inputs, too; use data.predict=values");
  }
  if (rule.kind == Normalization::none) return;
  if (rule.statistics == "compute") {
    statistics_ = std::make_unique<FieldStatistics>(description_, files_);
  } else {
    given_ = StatedNumbers::from(rule.statistics, description_.rule.lead, rule.statistics_cited);
    given();
  }
}

std::int64_t FieldDataset::stored_channels() const {
  return description_.rule.steps_in * description_.pairs.front().inputs.channels() +
         std::ssize(description_.static_names);
}

std::int64_t FieldDataset::target_channels() const {
  return description_.rule.steps_out * description_.pairs.front().targets.channels();
}

std::vector<std::int64_t> FieldDataset::shape_with(std::int64_t channels) const {
  std::vector<std::int64_t> shape = {channels};
  for (const SpaceAxis& axis : description_.space) shape.push_back(axis.count());
  return shape;
}

SampleLayout FieldDataset::layout() const {
  std::vector<Field> fields = {{.name = "data", .shape = shape_with(std::ssize(input_names()))}};
  if (description_.classes > 0) {
    std::vector<std::int64_t> shape = shape_with(1);
    shape.erase(shape.begin());
    fields.push_back({.name = "label", .shape = shape, .dtype = at::kLong});
  } else if (has_targets()) {
    const std::vector<std::int64_t> shape = shape_with(target_channels() * target_passes());
    fields.push_back({.name = "label", .shape = shape});
    if (description_.gaps != GapRule::error) fields.push_back({.name = "mask", .shape = shape, .dtype = at::kBool});
    if (rollout_.is_measured) fields.push_back({.name = kPersistence, .shape = shape});
    if (climatology_) fields.push_back({.name = kClimatology, .shape = shape});
  } else if (rollout_.is_forecast && description_.gaps != GapRule::error) {
    const std::vector<std::int64_t> shape = shape_with(target_channels() * target_passes());
    fields.push_back({.name = "mask", .shape = shape, .dtype = at::kBool});
  }
  if (rollout_.passes > 1) {
    std::vector<std::int64_t> shape = shape_with(std::ssize(input_names()));
    shape.insert(shape.begin(), rollout_.passes - 1);
    fields.push_back({.name = later_name(), .shape = shape});
  }
  return {.fields = std::move(fields)};
}

WindowRule FieldDataset::whole_rule() const {
  WindowRule rule = description_.rule;
  rule.steps_out *= rollout_.passes;
  return rule;
}

bool FieldDataset::needs_later_steps() const {
  return description_.pairs.front().inputs.channels() > std::ssize(inputs_of_targets_) || !description_.cycles.empty();
}

std::shared_ptr<const Dataset> FieldDataset::rolled_out(const RolloutRule& rule) const {
  if (inputs_of_targets_.empty() || description_.rule.lead != description_.rule.stride) {
    throw ConfigError(
        "a rollout needs targets that are inputs, too, and that follow them: set data.target_variables like "
        "data.variables, and data.lead like data.stride");
  }
  FieldDescription longer = description_;
  if (rule.pass_steps > 0) longer.rule.steps_out = rule.pass_steps;
  WindowRule windows = longer.rule;
  windows.steps_out *= rule.passes;
  if (rule.is_forecast) windows.steps_out = needs_later_steps() ? windows.steps_out - longer.rule.steps_out : 0;
  windows.is_first_only = windows.is_first_only || rule.first_only;
  for (FieldSeries& series : longer.series) {
    series.starts = starts_in(series.begin, series.end, windows, series.gaps);
  }
  std::erase_if(longer.series, [](const FieldSeries& series) { return series.starts.empty(); });
  if (longer.series.empty()) {
    throw ConfigError("a rollout of " + std::to_string(rule.passes) + " passes needs " +
                      std::to_string(windows.span() + 1) + " steps without a gap, but no trajectory of " +
                      description_.pairs.front().inputs.path + " has so many");
  }
  return std::make_shared<const FieldDataset>(std::move(longer), files_, rule, climatology_);
}

std::shared_ptr<const Dataset> FieldDataset::with_climatology(const Cited<std::string>& choice) const {
  if (description_.classes > 0 || !has_targets()) {
    throw ConfigError(choice.cite + ": the targets are no fields of numbers; remove the key");
  }
  auto climatology = std::make_shared<const FieldClimatology>(choice, description_, *files_);
  return std::make_shared<const FieldDataset>(description_, files_, rollout_, std::move(climatology));
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

std::vector<std::int64_t> FieldDataset::chunks() const {
  std::vector<ChunkSize> sizes;
  for (const FieldPair& pair : description_.pairs) sizes.push_back(chunk_size_of(costliest_variable(pair)));
  using ChunkPlace = std::array<std::int64_t, 3>;  // file, and position along both axes
  std::map<ChunkPlace, std::int64_t> numbers;
  std::vector<std::int64_t> chunks;
  for (const FieldSeries& series : description_.series) {
    for (const std::int64_t trajectory : series.trajectories) {
      for (const std::int64_t start : series.starts) {
        const std::size_t file = file_of(series, start);
        const ChunkSize& size = sizes[series.files[file]];
        const ChunkPlace place = {static_cast<std::int64_t>(series.files[file]), trajectory / size.trajectories,
                                  (start - series.begins[file]) / size.steps};
        chunks.push_back(numbers.try_emplace(place, std::ssize(numbers)).first->second);
      }
    }
  }
  return chunks;
}

ChunkBytes FieldDataset::chunk_bytes() const { return bytes_of_chunks(); }

/// A difference exists only where the newest input has a value.
void FieldDataset::clear_where_newest_is_missing(const float* input, bool* mask) const {
  const FieldFile& file = description_.pairs.front().inputs;
  const std::int64_t points = points_of(description_.space);
  const float* const newest = input + (description_.rule.steps_in - 1) * file.channels() * points;
  for (std::int64_t step = 0; step < description_.rule.steps_out * target_passes(); ++step) {
    for (const std::int64_t channel : inputs_of_targets_) {
      for (std::int64_t i = 0; i < points; ++i, ++mask) *mask = *mask && !std::isnan(newest[channel * points + i]);
    }
  }
}

void FieldDataset::add_cycles(const FieldSeries& series, std::int64_t start, float* out) const {
  constexpr double kDay = 86400;
  const std::int64_t points = points_of(description_.space);
  const auto time_of = [&](std::int64_t step) {
    const std::size_t file = file_of(series, step);
    return description_.pairs[series.files[file]].inputs.times[static_cast<std::size_t>(step - series.begins[file])];
  };
  const WindowRule& rule = description_.rule;
  const std::int64_t newest = start + (rule.steps_in - 1) * rule.stride;
  const std::int64_t target = newest + rule.lead;
  const arrays::Calendar calendar = description_.pairs[series.files[file_of(series, newest)]].inputs.calendar;
  double time = 0;
  if (target < series.end) {
    time = time_of(target);
  } else {  // a window without targets at the end of the series
    const double step = newest > series.begin ? time_of(newest) - time_of(newest - 1) : 0;
    time = time_of(newest) + static_cast<double>(rule.lead) * step;
  }
  for (const std::string& cycle : description_.cycles) {
    const double period = cycle == "day" ? kDay : kDay * arrays::mean_year_days(calendar);
    const double phase = 2 * std::numbers::pi * (time / period - std::floor(time / period));
    out = std::fill_n(out, points, static_cast<float>(std::sin(phase)));
    out = std::fill_n(out, points, static_cast<float>(std::cos(phase)));
  }
}

/// The input of a forward pass: the stored channels, with gaps as NaN, and those that are computed.
/// @param end  steps from this one on are not read: predictions replace them, and the step before has their gaps
void FieldDataset::fill_input(const FieldSeries& series, std::int64_t trajectory, std::int64_t start, std::int64_t end,
                              float* input) const {
  const std::int64_t points = points_of(description_.space);
  const std::int64_t stored_count = stored_channels() * points;
  const std::vector<std::int64_t> steps = description_.rule.input_steps(start);
  const std::int64_t read = std::ranges::lower_bound(steps, end) - steps.begin();
  read_series(description_, *files_, series, trajectory, std::span(steps).first(static_cast<std::size_t>(read)),
              description_.rule.stride, false, input, &checked_);
  const std::int64_t pitch = description_.pairs.front().inputs.channels() * points;
  for (std::int64_t step = read; step < std::ssize(steps); ++step) {
    const std::int64_t newest = end - 1;
    read_series(description_, *files_, series, trajectory, std::span(&newest, 1), description_.rule.stride, false,
                input + step * pitch, &checked_);
  }
  std::ranges::copy(description_.statics, input + stored_count - std::ssize(description_.statics));
  float* next = input + stored_count;
  if (description_.has_gap_channel) {
    next = std::transform(input, input + stored_count, next, [](float x) { return std::isnan(x) ? 0.F : 1.F; });
  }
  next = std::ranges::copy(description_.positions, next).out;
  if (!description_.cycles.empty()) add_cycles(series, start, next);
}

void FieldDataset::fill(const batch::Draw& draw, batch::ValueMap& row) const {
  check_indices(std::span(&draw, 1), size());
  const auto end = std::ranges::upper_bound(ends_, draw.index);
  const FieldSeries& series = description_.series[static_cast<std::size_t>(end - ends_.begin())];
  const std::int64_t number = draw.index - (*end - series.samples());
  const std::int64_t start = series.starts[static_cast<std::size_t>(number % std::ssize(series.starts))];
  const std::int64_t trajectory = series.trajectories[static_cast<std::size_t>(number / std::ssize(series.starts))];
  const auto numbers = [&row](const char* name) { return row.at(name).as<at::Tensor>().mutable_data_ptr<float>(); };
  const std::int64_t points = points_of(description_.space);
  const std::int64_t stored_count = stored_channels() * points;
  float* const input = numbers("data");
  fill_input(series, trajectory, start, series.end, input);
  if (has_targets()) fill_target(series, trajectory, start, input, row);
  if (rollout_.is_forecast && row.contains("mask")) {
    const at::Tensor& mask = row.at("mask").as<at::Tensor>();
    std::fill_n(mask.mutable_data_ptr<bool>(), mask.numel(), true);
    clear_where_newest_is_missing(input, mask.mutable_data_ptr<bool>());
  }
  if (description_.gaps == GapRule::zero) fill_gaps(input, stored_count, nullptr);
  const std::int64_t pass_steps = description_.rule.steps_out * description_.rule.stride;
  const bool is_read = !rollout_.is_forecast || needs_later_steps();
  const std::int64_t read_end =
      is_read ? series.end : start + (description_.rule.steps_in - 1) * description_.rule.stride + 1;
  for (std::int64_t pass = 1; pass < rollout_.passes; ++pass) {
    float* const later = numbers(later_name()) + (pass - 1) * std::ssize(input_names()) * points;
    fill_input(series, trajectory, start + pass * pass_steps, read_end, later);
    if (description_.gaps == GapRule::zero) fill_gaps(later, stored_count, nullptr);
  }
}

/// @param input  the first one, with gaps as NaN
void FieldDataset::fill_target(const FieldSeries& series, std::int64_t trajectory, std::int64_t start,
                               const float* input, batch::ValueMap& row) const {
  const auto tensor = [&row](const char* name) { return row.at(name).as<at::Tensor>(); };
  const std::int64_t points = points_of(description_.space);
  std::vector<std::int64_t> steps = whole_rule().target_steps(start);
  if (rollout_.last_target) steps.erase(steps.begin(), steps.end() - description_.rule.steps_out);
  const auto read = [&](float* out) {
    read_series(description_, *files_, series, trajectory, steps, description_.rule.stride, true, out, &checked_);
  };
  if (description_.classes == 0) {
    auto* const target = tensor("label").mutable_data_ptr<float>();
    read(target);
    if (description_.gaps != GapRule::error) {
      auto* const mask = tensor("mask").mutable_data_ptr<bool>();
      fill_gaps(target, target_channels() * target_passes() * points, mask);
      if (description_.normalization.prediction != FieldPrediction::values) {
        clear_where_newest_is_missing(input, mask);
      }
    }
    if (climatology_) {
      auto* const out = tensor(kClimatology).mutable_data_ptr<float>();
      const std::int64_t pitch = description_.pairs.front().targets.channels() * points;
      for (std::size_t step = 0; step < steps.size(); ++step) {
        climatology_->read(description_, *files_, series, steps[step], out + static_cast<std::int64_t>(step) * pitch);
      }
    }
    if (rollout_.is_measured) {
      auto* out = tensor(kPersistence).mutable_data_ptr<float>();
      const std::int64_t channels = description_.pairs.front().inputs.channels();
      const float* const newest = input + (description_.rule.steps_in - 1) * channels * points;
      for (std::size_t step = 0; step < steps.size(); ++step) {
        for (const std::int64_t channel : inputs_of_targets_) out = std::copy_n(newest + channel * points, points, out);
      }
    }
    return;
  }
  std::vector<float> stored(static_cast<std::size_t>(points));
  read(stored.data());
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
