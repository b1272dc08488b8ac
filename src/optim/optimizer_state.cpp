// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::optim {

namespace {

constexpr const char* kMaster = "master";  // state of 16-bit parameters: what updates make of them in float32

DType state_type(const FlatBlock& block) { return block.is_half() ? DType::float32 : block.dtype; }

std::int64_t count_of(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

/// The strides of an array of a parameter's shape, or of several such one after another. Others have none of their own.
Shape strides_like(const Segment& parameter, const Shape& shape) {
  const auto several = static_cast<std::ptrdiff_t>(shape.size()) - static_cast<std::ptrdiff_t>(parameter.shape.size());
  if (parameter.strides.empty() || several < 0) return {};
  if (!std::equal(parameter.shape.begin(), parameter.shape.end(), shape.begin() + several)) return {};
  Shape strides = parameter.strides;
  std::int64_t count = parameter.count;
  for (std::ptrdiff_t i = several; i-- > 0;) {
    strides.insert(strides.begin(), count);
    count *= shape[static_cast<std::size_t>(i)];
  }
  return strides;
}

/// Elements, up to the end of a cache line.
std::int64_t whole_lines(std::int64_t count, std::size_t element) {
  const auto line = static_cast<std::int64_t>(64 / element);
  return (count + line - 1) / line * line;
}

}  // namespace

/// The longest list of all groups, and the master of 16-bit parameters.
void Optimizer::name_states() {
  for (const ParamGroup& group : groups_) {
    auto names = rule_->state_names(group.options);
    if (names.size() > state_names_.size()) state_names_ = std::move(names);
  }
  for (const ParamGroup& group : groups_) {
    const auto names = rule_->state_names(group.options);
    if (std::equal(names.begin(), names.end(), state_names_.begin())) continue;
    throw_agreed(
        ExitCode::configuration,
        "optim.paramwise: the groups of an optimizer cannot have different states of rule '" + rule_->name + "'");
  }
  rule_states_ = state_names_.size();
  const auto blocks = parameters_->blocks();
  const bool has_half =
      std::any_of(blocks.begin(), blocks.end(), [](const FlatBlock& block) { return block.is_half(); });
  if (has_half && half_.has_masters) state_names_.emplace_back(kMaster);
  if (state_names_.size() > kMaxStates) throw std::logic_error("rule '" + rule_->name + "' has too many states");
}

/// The shape of a state array of a parameter; nullopt = the parameter does not have it.
std::optional<Shape> Optimizer::shape_of(std::size_t block, std::size_t segment, std::size_t slot) const {
  const FlatBlock& flat_block = parameters_->blocks()[block];
  const bool is_master = slot >= rule_states_;
  if (is_master && !flat_block.is_half()) return std::nullopt;
  const StateShape shape = is_master ? nullptr : rule_->state_shape();
  return shape == nullptr ? flat_block.segments[segment].shape
                          : shape(options_of(block, segment), slot, flat_block.segments[segment].shape);
}

/// Arrays that are not laid out like the parameters hold what there is of one segment after another.
void Optimizer::allocate_state(std::size_t block) {
  const FlatBlock& flat_block = parameters_->blocks()[block];
  const bool has_own_shapes = rule_->state_shape() != nullptr;
  const std::size_t element = size_of(state_type(flat_block));
  auto& arrays = state_.emplace_back();
  auto& begins = state_begin_.emplace_back(state_names_.size());
  for (std::size_t slot = 0; slot < state_names_.size(); ++slot) {
    std::int64_t end = 0;
    for (std::size_t s = 0; s < flat_block.segments.size(); ++s) {
      const Segment& segment = flat_block.segments[s];
      begins[slot].push_back(has_own_shapes ? end : segment.offset);
      if (!has_own_shapes) continue;
      const std::optional<Shape> shape = shape_of(block, s, slot);
      const bool is_elsewhere = flat_block.is_slice && segment.own_begin == segment.own_end;
      end += shape && !is_elsewhere ? whole_lines(count_of(*shape), element) : 0;
    }
    const bool exists = slot < rule_states_ || flat_block.is_half();
    begins[slot].push_back(has_own_shapes ? end : exists ? flat_block.count : 0);
    arrays.push_back(parameters_->allocate(static_cast<std::size_t>(begins[slot].back()) * element));
  }
}

std::span<std::byte> Optimizer::state(std::size_t block, std::size_t slot) {
  const std::size_t element = size_of(state_type(parameters_->blocks()[block]));
  return {state_.at(block).at(slot).get(), static_cast<std::size_t>(state_begin_[block][slot].back()) * element};
}

std::optional<StateArray> Optimizer::state_of(std::size_t block, std::size_t segment, std::size_t slot) const {
  const FlatBlock& flat_block = parameters_->blocks()[block];
  const Segment& parameter = flat_block.segments[segment];
  const std::optional<Shape> shape = shape_of(block, segment, slot);
  if (!shape) return std::nullopt;
  const std::int64_t begin =
      state_begin_[block][slot][segment] * static_cast<std::int64_t>(size_of(state_type(flat_block)));
  return StateArray{.values = state_[block][slot].get() + begin,
                    .dtype = state_type(flat_block),
                    .shape = *shape,
                    .strides = strides_like(parameter, *shape)};
}

}  // namespace lockstep::optim
