// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_chunks.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace lockstep::data {

namespace {

constexpr std::size_t kMaxWindows = 4096;  // a mean over so many is exact enough

/// Positions of chunks along each axis but those of trajectories and time, which the points of a sample touch.
using TouchedAxes = std::vector<std::set<std::int64_t>>;

/// The chunks of an array that differ only in trajectory and time.
struct ChunkColumn {
  std::string file;
  std::string array;
  TouchedAxes touched;

  auto operator<=>(const ChunkColumn&) const = default;
};

struct ColumnUse {
  const FieldVariable* variable = nullptr;
  std::set<std::int64_t> steps = {};  ///< steps of a window that begins at 0
};

TouchedAxes touched_axes(const FieldVariable& variable, const SampleSpace& space) {
  const std::vector<std::int64_t>& chunk = variable.info.storage.chunk;
  const FieldAxes& axes = variable.axes;
  TouchedAxes touched(chunk.size(), {0});
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (axes.fixed[i] >= 0) touched[i] = {axes.fixed[i] / chunk[i]};
  }
  for (std::size_t k = 0; k < axes.channels.size(); ++k) {
    const std::size_t axis = axes.channels[k];
    touched[axis].clear();
    for (const std::int64_t channel : variable.channels) {
      const std::int64_t columns = axes.channels.size() == 2 ? variable.info.shape[axes.channels[1]] : 1;
      const std::int64_t position = k == 0 ? channel / columns : channel % columns;
      touched[axis].insert(position / chunk[axis]);
    }
  }
  for (const SpaceAxis& each : space) {
    const std::size_t axis = axes.letters.find(each.letter);
    if (variable.repeats[axis]) continue;
    touched[axis].clear();
    for (std::int64_t i = each.part.begin; i < each.part.end; i += each.part.step)
      touched[axis].insert(touched[axis].end(), i / chunk[axis]);
  }
  return touched;
}

/// Bytes of the chunks of a column with the same trajectories and times.
double bytes_of(const ChunkColumn& column, const FieldVariable& variable) {
  auto bytes = static_cast<double>(variable.info.type.bytes);
  for (const std::int64_t size : variable.info.storage.chunk) bytes *= static_cast<double>(size);
  for (const std::set<std::int64_t>& positions : column.touched) bytes *= static_cast<double>(positions.size());
  return bytes;
}

double blocks(std::int64_t size, std::int64_t in_chunk) {
  return static_cast<double>((size + in_chunk - 1) / in_chunk);
}

double all_bytes_of(const FieldFile& file, const ChunkColumn& column, const FieldVariable& variable) {
  const FieldAxes& axes = variable.axes;
  const ChunkSize size = chunk_size_of(variable);
  double bytes = bytes_of(column, variable);
  if (!variable.groups.empty()) bytes *= static_cast<double>(variable.groups.size());
  if (axes.trajectory && !variable.repeats[*axes.trajectory]) bytes *= blocks(file.trajectories, size.trajectories);
  if (axes.time && !variable.repeats[*axes.time]) bytes *= blocks(file.steps, size.steps);
  return bytes;
}

/// Calls use(file, variable, steps of a window that begins at 0) for the chunked variables of a pair.
template <class Use>
void for_each_chunked(const FieldDescription& description, const FieldPair& pair, const Use& use) {
  const auto visit = [&](const FieldFile& file, const std::vector<std::int64_t>& steps) {
    for (const FieldVariable& variable : file.variables) {
      if (is_in_chunks(file.path, variable) && !steps.empty()) use(file, variable, steps);
    }
  };
  visit(pair.inputs, description.rule.input_steps(0));
  visit(pair.targets, description.rule.target_steps(0));
}

/// The mean number of different chunks along the axis of time, over the windows of the first series.
double mean_blocks(const FieldDescription& description, const ColumnUse& use) {
  const FieldAxes& axes = use.variable->axes;
  if (!axes.time || use.variable->repeats[*axes.time] || description.series.empty()) return 1;
  const FieldSeries& series = description.series.front();
  const std::int64_t in_chunk = chunk_size_of(*use.variable).steps;
  const std::size_t windows = std::min(series.starts.size(), kMaxWindows);
  double sum = 0;
  for (std::size_t i = 0; i < windows; ++i) {
    std::set<std::pair<std::size_t, std::int64_t>> found;
    for (const std::int64_t step : use.steps) {
      const std::size_t file = file_of(series, series.starts[i] + step);
      found.emplace(file, (series.starts[i] + step - series.begins[file]) / in_chunk);
    }
    sum += static_cast<double>(found.size());
  }
  return windows > 0 ? sum / static_cast<double>(windows) : 1;
}

}  // namespace

ChunkSize chunk_size_of(const FieldVariable& variable) {
  const std::vector<std::int64_t>& chunk = variable.info.storage.chunk;
  ChunkSize size;
  if (chunk.empty()) return size;
  if (variable.axes.trajectory) size.trajectories = chunk[*variable.axes.trajectory];
  if (variable.axes.time) size.steps = chunk[*variable.axes.time];
  return size;
}

const FieldVariable& costliest_variable(const FieldPair& pair) {
  const FieldVariable* costliest = &pair.inputs.variables.front();
  double most = 0;
  for (const FieldFile* const file : {&pair.inputs, &pair.targets}) {
    for (const FieldVariable& variable : file->variables) {
      const ChunkSize size = chunk_size_of(variable);
      auto bytes = static_cast<double>(variable.info.type.bytes);  // those of a step
      for (std::size_t axis = 0; axis < variable.info.shape.size(); ++axis) {
        const bool is_step = axis == variable.axes.trajectory || axis == variable.axes.time;
        if (!is_step) bytes *= static_cast<double>(variable.info.shape[axis]);
      }
      const double cost = bytes * static_cast<double>(size.trajectories * size.steps - 1);
      if (cost <= most) continue;
      most = cost;
      costliest = &variable;
    }
  }
  return *costliest;
}

bool is_in_chunks(const std::string& file, const FieldVariable& variable) {
  return !variable.info.storage.chunk.empty() && !file.ends_with(".npz");
}

std::string chunk_size_text(const FieldVariable& variable) {
  const ChunkSize size = chunk_size_of(variable);
  const auto counted = [](std::int64_t count, const std::string& one, const std::string& many) {
    return std::to_string(count) + " " + (count == 1 ? one : many);
  };
  if (!variable.axes.time) return counted(size.trajectories, "row", "rows");
  const std::string steps = counted(size.steps, "step", "steps");
  return size.trajectories == 1 ? steps : steps + " of " + counted(size.trajectories, "trajectory", "trajectories");
}

ChunkCost chunk_cost_of(const FieldDescription& description) {
  ChunkCost cost;
  const auto column_of = [&](const FieldFile& file, const FieldVariable& variable) {
    return ChunkColumn{
        .file = file.path, .array = variable.info.path, .touched = touched_axes(variable, description.space)};
  };
  std::map<ChunkColumn, ColumnUse> columns;
  const auto points = static_cast<double>(points_of(description.space));
  for_each_chunked(
      description, description.pairs.front(),
      [&](const FieldFile& file, const FieldVariable& variable, const std::vector<std::int64_t>& steps) {
        ColumnUse& use = columns[column_of(file, variable)];
        use.variable = &variable;
        use.steps.insert(steps.begin(), steps.end());
        cost.used += static_cast<double>(steps.size() * variable.channels.size() * variable.info.type.bytes) * points;
      });
  for (const auto& [column, use] : columns) {
    cost.unpacked += bytes_of(column, *use.variable) * mean_blocks(description, use);
  }
  for (const FieldPair& pair : description.pairs) {
    std::set<ChunkColumn> counted;
    for_each_chunked(description, pair,
                     [&](const FieldFile& file, const FieldVariable& variable, const std::vector<std::int64_t>&) {
                       const ChunkColumn column = column_of(file, variable);
                       if (counted.insert(column).second) cost.all += all_bytes_of(file, column, variable);
                     });
  }
  return cost;
}

}  // namespace lockstep::data
