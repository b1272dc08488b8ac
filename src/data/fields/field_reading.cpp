// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "data/fields/field_files.hpp"

namespace lockstep::data {

namespace {

/// A range of positions on the channel axis that is read at once, and the chosen ones in it.
struct ChannelRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t first = 0;  ///< number of the first chosen channel in it
  std::size_t count = 0;
};

/// The ranges that hold the chosen channels: neighbors that ascend one by one if the channel axis is outside of space.
/// Inside of it, reading single channels would read the same bytes of the file once for each.
std::vector<ChannelRun> runs_of(const FieldVariable& variable) {
  const std::vector<std::int64_t>& chosen = variable.channels;
  const FieldAxes& axes = variable.axes;
  if (axes.channels.size() != 1) {
    return {{.begin = 0, .end = axes.channel_count(variable.info.shape), .first = 0, .count = chosen.size()}};
  }
  const bool is_inside = !axes.space.empty() && axes.channels.front() > axes.space.front();
  if (is_inside || axes.space.empty()) {
    const auto [least, most] = std::ranges::minmax(chosen);
    return {{.begin = least, .end = most + 1, .first = 0, .count = chosen.size()}};
  }
  std::vector<ChannelRun> runs;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (runs.empty() || runs.back().end != chosen[i])
      runs.push_back({.begin = chosen[i], .end = chosen[i], .first = i});
    ++runs.back().end;
    ++runs.back().count;
  }
  return runs;
}

/// The numbers of one slab, and how its elements are reached.
struct Block {
  arrays::Slab slab;
  std::int64_t step = 0;                   ///< distance between two steps; 0 = all steps are the same
  std::vector<std::int64_t> channel = {};  ///< distances of the channel axes
  std::array<std::int64_t, 3> space = {};  ///< distances of the axes of the samples; 0 = repeated
  std::array<std::int64_t, 3> counts = {1, 1, 1};
};

Block block_of(const FieldVariable& variable, const ChannelRun& run, std::int64_t trajectory, std::int64_t first,
               std::int64_t steps, std::int64_t stride, const SampleSpace& space) {
  const FieldAxes& axes = variable.axes;
  const std::size_t rank = variable.info.shape.size();
  Block block{.slab = {.start = std::vector<std::int64_t>(rank, 0),
                       .count = std::vector<std::int64_t>(rank, 1),
                       .step = std::vector<std::int64_t>(rank, 1)}};
  arrays::Slab& slab = block.slab;
  for (std::size_t i = 0; i < rank; ++i) {
    if (axes.fixed[i] >= 0) slab.start[i] = axes.fixed[i];
  }
  if (axes.trajectory && !variable.repeats[*axes.trajectory]) slab.start[*axes.trajectory] = trajectory;
  if (axes.time && !variable.repeats[*axes.time]) {
    slab.start[*axes.time] = first;
    slab.count[*axes.time] = steps;
    slab.step[*axes.time] = stride;
  }
  for (const std::size_t axis : axes.channels) slab.count[axis] = variable.info.shape[axis];
  if (axes.channels.size() == 1) {
    slab.start[axes.channels.front()] = run.begin;
    slab.count[axes.channels.front()] = run.end - run.begin;
  }
  std::vector<std::size_t> stored;
  for (const SpaceAxis& each : space) {
    stored.push_back(axes.letters.find(each.letter));
    if (variable.repeats[stored.back()]) continue;
    slab.start[stored.back()] = each.part.begin;
    slab.count[stored.back()] = each.count();
    slab.step[stored.back()] = each.part.step;
  }
  std::vector<std::int64_t> distance(rank, 1);
  for (std::size_t i = rank; i-- > 1;) distance[i - 1] = distance[i] * slab.count[i];
  if (axes.time && slab.count[*axes.time] > 1) block.step = distance[*axes.time];
  for (const std::size_t axis : axes.channels) block.channel.push_back(distance[axis]);
  const std::size_t outer = 3 - space.size();
  for (std::size_t i = 0; i < space.size(); ++i) {
    block.counts[outer + i] = space[i].count();
    block.space[outer + i] = variable.repeats[stored[i]] ? 0 : distance[stored[i]];
  }
  return block;
}

/// The offset of a chosen channel in a slab.
std::int64_t channel_offset(const FieldVariable& variable, const ChannelRun& run, const Block& block,
                            std::int64_t position) {
  if (block.channel.empty()) return 0;
  if (block.channel.size() == 1) return (position - run.begin) * block.channel[0];
  const std::int64_t columns = variable.info.shape[variable.axes.channels[1]];
  return position / columns * block.channel[0] + position % columns * block.channel[1];
}

/// Copies the points of one channel of one step in the order of the samples.
template <class Value>
void copy_points(const Value* in, const Block& block, Value* out) {
  const auto& [planes, rows, columns] = block.counts;
  for (std::int64_t i = 0; i < planes; ++i) {
    for (std::int64_t j = 0; j < rows; ++j) {
      const Value* from = in + i * block.space[0] + j * block.space[1];
      if (block.space[2] == 1) {
        std::copy_n(from, columns, out);
      } else {
        for (std::int64_t k = 0; k < columns; ++k) out[k] = from[k * block.space[2]];
      }
      out += columns;
    }
  }
}

/// Are the elements of a slab in the order of the samples, without gaps between them?
/// @param pitch  values from one step of the samples to the next
bool is_in_order(const FieldVariable& variable, const ChannelRun& run, const Block& block, std::int64_t steps,
                 std::int64_t pitch) {
  std::int64_t next = 1;
  for (std::size_t axis = block.counts.size(); axis-- > 0;) {
    if (block.counts[axis] > 1 && block.space[axis] != next) return false;
    next *= block.counts[axis];
  }
  for (std::size_t c = 0; c < run.count; ++c) {
    const std::int64_t offset = channel_offset(variable, run, block, variable.channels[run.first + c]);
    if (offset != static_cast<std::int64_t>(c) * next) return false;
  }
  return steps == 1 || (block.step == pitch && pitch == static_cast<std::int64_t>(run.count) * next);
}

}  // namespace

template <class Value>
void read_steps(const arrays::ArrayFile& file, const FieldVariable& variable, std::int64_t trajectory,
                std::int64_t first, std::int64_t steps, std::int64_t stride, const SampleSpace& space, Value* out,
                std::int64_t pitch) {
  thread_local std::vector<std::byte> stored;
  thread_local std::vector<Value> values;
  const std::int64_t points = points_of(space);
  arrays::ArrayInfo info = variable.info;
  info.path = variable.path_of(trajectory);
  const arrays::Packing& packing = variable.packing_of(trajectory);
  const std::int64_t row = variable.groups.empty() ? trajectory : 0;
  for (const ChannelRun& run : runs_of(variable)) {
    const Block block = block_of(variable, run, row, first, steps, stride, space);
    const auto size = static_cast<std::size_t>(arrays::size_of(block.slab));
    const bool is_direct =
        is_in_order(variable, run, block, steps, pitch) && size == static_cast<std::size_t>(steps * points) * run.count;
    Value* const first_out = out + static_cast<std::int64_t>(run.first) * points;
    if (is_direct && arrays::is_stored_as<Value>(packing)) {
      file.read(info, block.slab, std::as_writable_bytes(std::span(first_out, size)));
      continue;
    }
    stored.resize(size * info.type.bytes);
    file.read(info, block.slab, stored);
    if (is_direct) {
      arrays::decode(packing, stored, std::span(first_out, size));
      continue;
    }
    values.resize(size);
    arrays::decode(packing, stored, std::span(values));
    for (std::int64_t k = 0; k < steps; ++k) {
      for (std::size_t c = 0; c < run.count; ++c) {
        const std::int64_t position = variable.channels[run.first + c];
        copy_points(values.data() + k * block.step + channel_offset(variable, run, block, position), block,
                    out + k * pitch + static_cast<std::int64_t>(run.first + c) * points);
      }
    }
  }
}

template void read_steps(const arrays::ArrayFile&, const FieldVariable&, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, const SampleSpace&, float*, std::int64_t);
template void read_steps(const arrays::ArrayFile&, const FieldVariable&, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, const SampleSpace&, double*, std::int64_t);

}  // namespace lockstep::data
