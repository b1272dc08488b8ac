// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::optim {

namespace {

void require_supported(const Rule& rule, const HalfOptions& half, const FlatBlock& block) {
  if (block.dtype == DType::float32 || block.dtype == DType::float64) return;
  const std::string name = block.segments.empty() ? "?" : block.segments.front().name;
  const std::string fault = "parameter '" + name + "' is " + std::string(name_of(block.dtype)) + ", but ";
  if (!block.is_half()) throw ConfigError(fault + "optimizers update floating-point numbers only");
  if (rule.uses_closure()) throw ConfigError(fault + rule.name + " updates float32 and float64 only");
  if (half.rounds_stochastically && block.dtype != DType::bfloat16) {
    throw ConfigError(fault + "stochastic rounding supports bfloat16 only");
  }
}

/// The group of every parameter, by name.
std::map<std::string, std::size_t> group_numbers(const std::vector<ParamGroup>& groups) {
  std::map<std::string, std::size_t> numbers;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : groups[g].parameters) {
      if (!numbers.emplace(name, g).second) throw std::logic_error("parameter '" + name + "' is in two groups");
    }
  }
  return numbers;
}

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

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters, HalfOptions half)
    : rule_(&rule), groups_(std::move(groups)), parameters_(&parameters), half_(half) {
  if (half.has_masters && half.rounds_stochastically) {
    throw std::logic_error("masters are rounded to nearest even; stochastic rounding requires has_masters = false");
  }
  if (parameters.as_tensors() != nullptr && !rule.supports_tensors()) {
    throw ConfigError("optim.name: " + rule.name + " does not support GPUs; use another optimizer or run.device=cpu");
  }
  name_states();
  assign_groups();
  if (const auto* const of_closure = std::get_if<ClosureRule>(&rule.kind)) {
    if (groups_.size() != 1) {
      throw std::logic_error("rule '" + rule.name +
                             "' updates all parameters as one vector and requires a single group");
    }
    for (const std::string& name : of_closure->numbers) numbers_[name] = 0;
  }
  // A sum over a parameter is computed by one rank on a GPU.
  if (rule.is_whole() || (parameters.as_tensors() != nullptr && needs().sums)) parameters.own_whole_parameters();
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) allocate_state(b);
  initialize_state();
}

void Optimizer::assign_groups() {
  std::map<std::string, std::size_t> numbers = group_numbers(groups_);
  for (const FlatBlock& block : parameters_->blocks()) {
    require_supported(*rule_, half_, block);
    std::vector<std::size_t>& group_of_segment = group_of_.emplace_back();
    for (const Segment& segment : block.segments) {
      const auto found = numbers.find(segment.name);
      if (found == numbers.end()) throw std::logic_error("parameter '" + segment.name + "' is in no group");
      group_of_segment.push_back(found->second);
      numbers.erase(found);
    }
    steps_.emplace_back(block.segments.size(), 0);
    was_counted_.emplace_back(block.segments.size(), 0);
    coefficients_.emplace_back(block.segments.size());
  }
  if (!numbers.empty()) throw std::logic_error("there is no parameter named '" + numbers.begin()->first + "'");
}

std::span<std::int64_t> Optimizer::steps(std::size_t block) { return steps_.at(block); }

void Optimizer::set_all_steps(const std::vector<std::vector<std::int64_t>>& steps) {
  for (std::size_t b = 0; b < steps_.size(); ++b) std::copy(steps[b].begin(), steps[b].end(), steps_[b].begin());
}

void Optimizer::step(const GradientChange& change) {
  step_by_group(std::vector<GradientChange>(groups_.size(), change));
}

void Optimizer::step_by_group(Changes changes) {
  if (changes.size() != groups_.size()) throw std::logic_error("an update requires one change per group");
  std::visit([this, changes](const auto& rule) { step_by(rule, changes); }, rule_->kind);
}

/// Counts the update of every parameter that has a gradient.
void Optimizer::count_step() {
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    if (rule_->counts_every_step || parameters_->has_gradient(b, s)) ++steps_[b][s];
  });
}

// ---- the state

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
