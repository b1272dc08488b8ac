// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_series.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::data {

namespace {

/// The name of a channel of a file by its number over all variables.
const std::string& channel_name(const FieldFile& file, std::int64_t channel) {
  for (const FieldVariable& variable : file.variables) {
    if (channel < std::ssize(variable.names)) return variable.names[static_cast<std::size_t>(channel)];
    channel -= std::ssize(variable.names);
  }
  return file.path;
}

}  // namespace

std::size_t file_of(const FieldSeries& series, std::int64_t step) {
  return static_cast<std::size_t>(std::ranges::upper_bound(series.begins, step) - series.begins.begin()) - 1;
}

template <class Value>
void read_series(const FieldDescription& description, arrays::OpenFiles& files, const FieldSeries& series,
                 std::int64_t trajectory, std::span<const std::int64_t> steps, std::int64_t stride, bool are_targets,
                 Value* out) {
  const std::int64_t points = points_of(description.space);
  for (std::size_t k = 0; k < steps.size();) {
    const std::size_t number = file_of(series, steps[k]);
    const std::size_t begin = k;
    while (k < steps.size() && file_of(series, steps[k]) == number) ++k;
    const FieldPair& pair = description.pairs[series.files[number]];
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
    if (description.gaps != GapRule::error || (are_targets && description.classes > 0)) continue;
    const auto count = static_cast<std::int64_t>(k - begin) * pitch;
    const Value* const gap = std::find_if(first, first + count, [](Value value) { return std::isnan(value); });
    if (gap == first + count) continue;
    const std::int64_t position = gap - first;
    const std::int64_t step = steps[begin + static_cast<std::size_t>(position / pitch)] - series.begins[number];
    throw DataError(file.path, "there is no value (NaN or a fill value) of '" +
                                   channel_name(file, position % pitch / points) + "' at step " + std::to_string(step) +
                                   " of trajectory " + std::to_string(trajectory) +
                                   "; set data.gaps to train without these points");
  }
}

template void read_series(const FieldDescription&, arrays::OpenFiles&, const FieldSeries&, std::int64_t,
                          std::span<const std::int64_t>, std::int64_t, bool, float*);
template void read_series(const FieldDescription&, arrays::OpenFiles&, const FieldSeries&, std::int64_t,
                          std::span<const std::int64_t>, std::int64_t, bool, double*);

}  // namespace lockstep::data
