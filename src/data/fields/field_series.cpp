// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_series.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

/// Larger numbers are infinite, or mean "no value": the default fill value of netCDF is 9.97e36.
constexpr double kLargestValue = 1e36;

/// The name of a channel of a file by its number over all variables.
const std::string& channel_name(const FieldFile& file, std::int64_t channel) {
  for (const FieldVariable& variable : file.variables) {
    if (channel < std::ssize(variable.names)) return variable.names[static_cast<std::size_t>(channel)];
    channel -= std::ssize(variable.names);
  }
  return file.path;
}

/// Whether inputs and targets are the same values, and gaps are errors in both or in none.
bool are_same_values(const FieldDescription& description, const FieldPair& pair) {
  const auto is_same = [](const FieldVariable& a, const FieldVariable& b) {
    return a.info.path == b.info.path && a.axes.fixed == b.axes.fixed && a.channels == b.channels;
  };
  return description.classes == 0 && pair.inputs.path == pair.targets.path &&
         std::ranges::equal(pair.inputs.variables, pair.targets.variables, is_same);
}

constexpr std::size_t kBitsOfWord = 64;

}  // namespace

CheckedSteps::CheckedSteps(const FieldDescription& description) {
  std::size_t count = 0;
  const auto add_file = [&count](const FieldFile& file) {
    const StepsOfFile steps = {.begin = count, .steps = file.steps};
    count += static_cast<std::size_t>(file.trajectories * file.steps);
    return steps;
  };
  for (const FieldPair& pair : description.pairs) {
    inputs_.push_back(add_file(pair.inputs));
    targets_.push_back(are_same_values(description, pair) ? inputs_.back() : add_file(pair.targets));
  }
  bits_ = std::vector<std::atomic<std::uint64_t>>(count / kBitsOfWord + 1);
}

std::size_t CheckedSteps::number(std::size_t pair, bool are_targets, std::int64_t trajectory, std::int64_t step) const {
  const StepsOfFile& file = (are_targets ? targets_ : inputs_)[pair];
  return file.begin + static_cast<std::size_t>(trajectory * file.steps + step);
}

bool CheckedSteps::has(std::size_t pair, bool are_targets, std::int64_t trajectory, std::int64_t step) const {
  const std::size_t bit = number(pair, are_targets, trajectory, step);
  return (bits_[bit / kBitsOfWord].load(std::memory_order_relaxed) >> bit % kBitsOfWord & 1U) != 0;
}

void CheckedSteps::add(std::size_t pair, bool are_targets, std::int64_t trajectory, std::int64_t step) {
  const std::size_t bit = number(pair, are_targets, trajectory, step);
  bits_[bit / kBitsOfWord].fetch_or(std::uint64_t{1} << bit % kBitsOfWord, std::memory_order_relaxed);
}

std::size_t file_of(const FieldSeries& series, std::int64_t step) {
  return static_cast<std::size_t>(std::ranges::upper_bound(series.begins, step) - series.begins.begin()) - 1;
}

template <class Value>
void require_values(const FieldDescription& description, const FieldFile& file, bool are_targets,
                    std::span<const Value> values, const std::function<std::string(std::int64_t row)>& place) {
  const bool are_gaps_errors = description.gaps == GapRule::error && !(are_targets && description.classes > 0);
  if (arrays::are_all_within(values, kLargestValue)) return;
  const auto wrong = std::ranges::find_if(values, [are_gaps_errors](Value value) {
    return std::abs(value) > kLargestValue || (are_gaps_errors && std::isnan(value));
  });
  if (wrong == values.end()) return;
  const std::int64_t points = points_of(description.space);
  const std::int64_t pitch = file.channels() * points;
  const std::int64_t position = wrong - values.begin();
  const std::string of_channel =
      " of '" + channel_name(file, position % pitch / points) + "' at " + place(position / pitch);
  if (std::isnan(*wrong)) {
    throw DataError(file.path, "there is no value (NaN or a fill value)" + of_channel +
                                   "; set data.gaps to train without these points");
  }
  throw DataError(file.path, "the value" + of_channel + " is " + number_text(*wrong, 6) +
                                 ", which looks like a point that was never written; declare it as a gap with the "
                                 "attribute _FillValue, or correct it");
}

template <class Value>
void read_series(const FieldDescription& description, arrays::OpenFiles& files, const FieldSeries& series,
                 std::int64_t trajectory, std::span<const std::int64_t> steps, std::int64_t stride, bool are_targets,
                 Value* out, CheckedSteps* checked) {
  const std::int64_t points = points_of(description.space);
  for (std::size_t k = 0; k < steps.size();) {
    const std::size_t number = file_of(series, steps[k]);
    const std::size_t begin = k;
    while (k < steps.size() && file_of(series, steps[k]) == number) ++k;
    const std::size_t pair_number = series.files[number];
    const FieldPair& pair = description.pairs[pair_number];
    const FieldFile& file = are_targets ? pair.targets : pair.inputs;
    const auto open = files.get(file.path);
    const std::int64_t pitch = file.channels() * points;
    Value* const first = out + static_cast<std::int64_t>(begin) * pitch;
    Value* target = first;
    for (const FieldVariable& variable : file.variables) {
      read_steps(*open, variable, trajectory, steps[begin] - series.begins[number],
                 static_cast<std::int64_t>(k - begin), stride, description.space, target, pitch);
      target += std::ssize(variable.channels) * points;
    }
    const auto of_file = [&](std::size_t position) { return steps[position] - series.begins[number]; };
    bool is_checked = checked != nullptr;
    for (std::size_t i = begin; i < k; ++i) {
      is_checked = is_checked && checked->has(pair_number, are_targets, trajectory, of_file(i));
    }
    if (is_checked) continue;
    require_values<Value>(description, file, are_targets,
                          std::span(first, (k - begin) * static_cast<std::size_t>(pitch)), [&](std::int64_t row) {
                            return "step " + std::to_string(of_file(begin + static_cast<std::size_t>(row))) +
                                   " of trajectory " + std::to_string(trajectory);
                          });
    for (std::size_t i = begin; checked != nullptr && i < k; ++i) {
      checked->add(pair_number, are_targets, trajectory, of_file(i));
    }
  }
}

template void require_values(const FieldDescription&, const FieldFile&, bool, std::span<const double>,
                             const std::function<std::string(std::int64_t)>&);

template void read_series(const FieldDescription&, arrays::OpenFiles&, const FieldSeries&, std::int64_t,
                          std::span<const std::int64_t>, std::int64_t, bool, float*, CheckedSteps*);
template void read_series(const FieldDescription&, arrays::OpenFiles&, const FieldSeries&, std::int64_t,
                          std::span<const std::int64_t>, std::int64_t, bool, double*, CheckedSteps*);

}  // namespace lockstep::data
