// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/half_format.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "kernel.hpp"
#include "piece_sums.hpp"

namespace lockstep::optim {

namespace {

constexpr std::size_t kMostStates = 8;
constexpr const char* kMaster = "master";  // state of 16-bit parameters: what updates make of them in float32

bool is_half(const Block& block) { return block.dtype == DType::float16 || block.dtype == DType::bfloat16; }
DType state_type(const Block& block) { return is_half(block) ? DType::float32 : block.dtype; }

std::int64_t count_of(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

/// Of an array of a parameter's shape, or of several such one after another. Others have none of their own.
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

void require_supported(const Rule& rule, FlatParameters& parameters, const Block& block) {
  if (block.dtype == DType::float32 || block.dtype == DType::float64) return;
  const std::string name = block.segments.empty() ? "?" : block.segments.front().name;
  const std::string fault = "parameter '" + name + "' is " + std::string(name_of(block.dtype)) + ", but ";
  if (!is_half(block)) throw ConfigError(fault + "optimizers update floating-point numbers only");
  if (rule.is_whole) throw ConfigError(fault + rule.name + " updates float32 and float64 only");
  if (parameters.as_tensors() != nullptr) {
    throw ConfigError(fault + "on a GPU optimizers update float32 and float64 only");
  }
}

/// Brings masters up to what somebody else made of the parameters, such as a restored checkpoint or an average.
void follow(const std::byte* parameters, float* masters, std::int64_t count, const HalfFormat& format) {
  std::array<std::byte, kPieceElements * kHalfBytes> rounded;  // uninitialised: filled as far as it is used
  const auto bytes = static_cast<std::size_t>(count) * kHalfBytes;
  format.narrow(masters, rounded.data(), static_cast<std::size_t>(count));
  if (std::memcmp(rounded.data(), parameters, bytes) == 0) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const bool is_same = std::memcmp(rounded.data() + i * kHalfBytes, parameters + i * kHalfBytes, kHalfBytes) == 0;
    if (!is_same) format.widen(parameters + i * kHalfBytes, masters + i, 1);
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

template <class T>
LOCKSTEP_VECTORISED void scale(T* to, const T* from, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

/// A NaN stays.
template <class T>
LOCKSTEP_VECTORISED void clamp(T* values, std::int64_t count, T limit) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = values[i];
    values[i] = value > limit ? limit : value < -limit ? -limit : value;
  }
}

// The rule's function for the type of the stretch at hand.
void update_by(const Rule& rule, const Coefficients& c, const Stretch<float>& stretch) { rule.update32(c, stretch); }
void update_by(const Rule& rule, const Coefficients& c, const Stretch<double>& stretch) { rule.update64(c, stretch); }
Sums measure_by(const Rule& rule, const Coefficients& c, const Stretch<float>& stretch) {
  return rule.measure32(c, stretch);
}
Sums measure_by(const Rule& rule, const Coefficients& c, const Stretch<double>& stretch) {
  return rule.measure64(c, stretch);
}

}  // namespace

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters)
    : rule_(&rule), groups_(std::move(groups)), parameters_(&parameters) {
  for (const ParamGroup& group : groups_) {
    auto names = rule.state_names(group.options);
    if (names.size() > state_names_.size()) state_names_ = std::move(names);
  }
  for (const ParamGroup& group : groups_) {
    const auto names = rule.state_names(group.options);
    if (std::equal(names.begin(), names.end(), state_names_.begin())) continue;
    throw_agreed(
        ExitCode::configuration,
        "optim.paramwise: the groups of an optimizer cannot keep different states of rule '" + rule.name + "'");
  }
  rule_states_ = state_names_.size();
  for (const Block& block : parameters.blocks()) {
    if (is_half(block) && state_names_.size() == rule_states_) state_names_.emplace_back(kMaster);
  }
  if (state_names_.size() > kMostStates) throw std::logic_error("rule '" + rule.name + "' keeps too many states");
  std::map<std::string, std::size_t> numbers = group_numbers(groups_);
  for (const Block& block : parameters.blocks()) {
    require_supported(rule, parameters, block);
    std::vector<std::size_t> group_of_segment;
    for (const Segment& segment : block.segments) {
      const auto found = numbers.find(segment.name);
      if (found == numbers.end()) throw std::logic_error("parameter '" + segment.name + "' is in no group");
      group_of_segment.push_back(found->second);
      numbers.erase(found);
    }
    group_of_.push_back(std::move(group_of_segment));
    steps_.emplace_back(block.segments.size(), 0);
    was_counted_.emplace_back(block.segments.size(), 0);
    coefficients_.emplace_back(block.segments.size());
  }
  if (!numbers.empty()) throw std::logic_error("no parameter is named '" + numbers.begin()->first + "'");
  for (const std::string& name : rule.numbers) numbers_[name] = 0;
  if (rule.minimise != nullptr && groups_.size() != 1) {
    throw std::logic_error("rule '" + rule.name + "' moves all parameters as one, so it wants one group");
  }
  if (rule.is_whole) parameters.own_whole_parameters();
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) allocate_state(b);
  initialize_state();
}

/// Arrays that are not laid out like the parameters hold what there is of one segment after another.
void Optimizer::allocate_state(std::size_t block) {
  const Block& of = parameters_->blocks()[block];
  const std::size_t element = size_of(state_type(of));
  auto& arrays = state_.emplace_back();
  auto& begins = state_begin_.emplace_back(state_names_.size());
  for (std::size_t slot = 0; slot < state_names_.size(); ++slot) {
    std::int64_t end = 0;
    for (std::size_t s = 0; s < of.segments.size(); ++s) {
      const Segment& segment = of.segments[s];
      begins[slot].push_back(rule_->state_shape == nullptr ? segment.offset : end);
      if (rule_->state_shape == nullptr) continue;
      const std::optional<Shape> shape = rule_->state_shape(options_of(block, s), slot, segment.shape);
      end += shape ? whole_lines(count_of(*shape), element) : 0;
    }
    const bool exists = slot < rule_states_ || is_half(of);
    begins[slot].push_back(rule_->state_shape != nullptr ? end : exists ? of.count : 0);
    arrays.push_back(parameters_->allocate(static_cast<std::size_t>(begins[slot].back()) * element));
  }
}

std::span<std::byte> Optimizer::state(std::size_t block, std::size_t slot) {
  const std::size_t element = size_of(state_type(parameters_->blocks()[block]));
  return {state_.at(block).at(slot).get(), static_cast<std::size_t>(state_begin_[block][slot].back()) * element};
}

std::optional<StateArray> Optimizer::state_of(std::size_t block, std::size_t segment, std::size_t slot) const {
  const Block& of = parameters_->blocks()[block];
  const Segment& parameter = of.segments[segment];
  if (slot >= rule_states_ && !is_half(of)) return std::nullopt;
  const std::optional<Shape> shape = rule_->state_shape == nullptr
                                         ? parameter.shape
                                         : rule_->state_shape(options_of(block, segment), slot, parameter.shape);
  if (!shape) return std::nullopt;
  const std::int64_t begin = state_begin_[block][slot][segment] * static_cast<std::int64_t>(size_of(state_type(of)));
  return StateArray{.values = state_[block][slot].get() + begin,
                    .dtype = state_type(of),
                    .shape = *shape,
                    .strides = strides_like(parameter, *shape)};
}

std::span<std::int64_t> Optimizer::steps(std::size_t block) { return steps_.at(block); }

void Optimizer::step(const GradientChange& change) {
  step_by_group(std::vector<GradientChange>(groups_.size(), change));
}

void Optimizer::step_by_group(Changes changes) {
  if (changes.size() != groups_.size()) throw std::logic_error("an update wants one change for each group");
  if (rule_->minimise != nullptr) throw std::logic_error("rule '" + rule_->name + "' has no step but minimise");
  if (rule_->is_whole) return step_whole(changes);
  parameters_->finish_gradients();
  count_step();
  const Needs needed = needs();
  if (needed.gradient_norm) learn_norm(changes);
  if (needed.sums) learn_sums(changes);
  parameters_->write([this, changes] {
    visit_stretches(changes, /*is_last=*/true, [this](const GradientPiece& piece, const auto& stretch) {
      update_by(*rule_, coefficients_[piece.block][piece.segment], stretch);
    });
  });
}

/// Counts the update of every parameter that has a gradient, and computes its coefficients.
void Optimizer::count_step() {
  std::size_t last_group = groups_.size();
  std::int64_t last_step = 0;
  Coefficients last{};
  for (std::size_t b = 0; b < steps_.size(); ++b) {
    for (std::size_t s = 0; s < steps_[b].size(); ++s) {
      const bool is_updated = parameters_->has_gradient(b, s);
      if (!is_updated && !rule_->counts_every_step) continue;
      const std::int64_t step = ++steps_[b][s];
      if (!is_updated || rule_->coefficients == nullptr) continue;
      const std::size_t group = group_of_[b][s];
      if (group != last_group || step != last_step) last = rule_->coefficients(groups_[group].options, step);
      last_group = group;
      last_step = step;
      coefficients_[b][s] = last;
    }
  }
}

/// What any group needs.
Needs Optimizer::needs() const {
  Needs all;
  if (rule_->needs == nullptr) return all;
  for (const ParamGroup& group : groups_) {
    const Needs of_group = rule_->needs(group.options);
    all.gradient_norm = all.gradient_norm || of_group.gradient_norm;
    all.sums = all.sums || of_group.sums;
  }
  return all;
}

void Optimizer::learn_norm(Changes changes) {
  const PieceNumbers pieces(parameters_->blocks());
  std::vector<double> squares(pieces.count());
  visit_stretches(changes, /*is_last=*/false, [&](const GradientPiece& piece, const auto& stretch) {
    squares[pieces.place_of(piece)] = sum_of_squares(stretch.gradient, stretch.count);
  });
  parameters_->sum_over_owners(squares);  // each has one owner: the others add 0
  const double norm = std::sqrt(sum_by_tree(squares));
  for (std::size_t b = 0; b < steps_.size(); ++b) {
    for (std::size_t s = 0; s < steps_[b].size(); ++s) {
      if (!parameters_->has_gradient(b, s)) continue;
      const Options& options = groups_[group_of_[b][s]].options;
      if (rule_->needs(options).gradient_norm) rule_->adapt_to_norm(coefficients_[b][s], options, norm);
    }
  }
}

void Optimizer::learn_sums(Changes changes) {
  const std::span<const Block> blocks = parameters_->blocks();
  const PieceNumbers pieces(blocks);
  std::vector<double> values(pieces.count() * Sums().size());  // one row for each sum
  const auto row = [&](std::size_t k) { return std::span(values).subspan(k * pieces.count(), pieces.count()); };
  visit_stretches(changes, /*is_last=*/false, [&](const GradientPiece& piece, const auto& stretch) {
    if (!rule_->needs(groups_[group_of_[piece.block][piece.segment]].options).sums) return;
    const Sums measured = measure_by(*rule_, coefficients_[piece.block][piece.segment], stretch);
    for (std::size_t k = 0; k < measured.size(); ++k) row(k)[pieces.place_of(piece)] = measured[k];
  });
  parameters_->sum_over_owners(values);  // each has one owner: the others add 0
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) {
      const Options& options = groups_[group_of_[b][s]].options;
      if (!parameters_->has_gradient(b, s) || !rule_->needs(options).sums) continue;
      Sums sums{};
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] = sum_by_tree(pieces.part(row(k), b, s));
      rule_->adapt(coefficients_[b][s], options, sums, blocks[b].segments[s]);
    }
  }
}

/// Calls visit(piece, stretch) for every piece of this rank, with the gradient as it enters the update. In the last
/// visit many may come together.
template <class Visit>
void Optimizer::visit_stretches(Changes changes, bool is_last, const Visit& visit) {
  parameters_->visit_gradients(
      [&](const GradientPiece& given) {
        const Block& block = parameters_->blocks()[given.block];
        const GradientChange& change = changes[group_of_[given.block][given.segment]];
        const bool is_taken_as_is = is_last && change.is_none() && !is_half(block) && rule_->needs == nullptr;
        for_each_part(given, is_taken_as_is ? given.count : kPieceElements, size_of(block.dtype),
                      [&](const GradientPiece& piece) {
                        if (block.dtype == DType::float64) {
                          visit_stretch<double>(piece, change, is_last, visit);
                        } else {
                          visit_stretch<float>(piece, change, is_last, visit);
                        }
                      });
      },
      is_last);
}

/// Calls visit for every piece of this rank, whose values are the gradient as it enters the update.
void Optimizer::visit_pieces(Changes changes, const std::function<void(const GradientPiece&)>& visit) {
  visit_stretches(changes, /*is_last=*/true, [&](GradientPiece piece, const auto& stretch) {
    piece.values = reinterpret_cast<const std::byte*>(stretch.gradient);
    visit(piece);
  });
}

template <class T, class Visit>
void Optimizer::visit_stretch(const GradientPiece& piece, const GradientChange& change, bool is_last,
                              const Visit& visit) {
  const Block& block = parameters_->blocks()[piece.block];
  const std::int64_t begin = block.segments[piece.segment].offset + piece.begin;
  std::array<T*, kMostStates> state{};
  for (std::size_t slot = 0; slot < state_names_.size() && !rule_->is_whole; ++slot) {
    state[slot] = reinterpret_cast<T*>(state_[piece.block][slot].get()) + begin;
  }
  auto* parameter = reinterpret_cast<T*>(block.parameters) + begin;
  const auto* gradient = reinterpret_cast<const T*>(piece.values);
  std::array<T, kPieceElements> changed;  // uninitialised: filled only where it is used
  std::optional<HalfFormat> half;
  std::byte* const half_parameter = block.parameters + begin * static_cast<std::int64_t>(kHalfBytes);
  if constexpr (std::is_same_v<T, float>) {
    if (is_half(block)) {
      half = half_format(block.dtype);
      half->widen(piece.values, changed.data(), static_cast<std::size_t>(piece.count));
      gradient = changed.data();
      parameter = state[rule_states_];
      follow(half_parameter, parameter, piece.count, *half);
    }
  }
  if (!change.is_none()) {
    scale(changed.data(), gradient, piece.count, static_cast<T>(change.factor));
    if (change.limit < std::numeric_limits<double>::infinity()) {
      clamp(changed.data(), piece.count, static_cast<T>(change.limit));
    }
    gradient = changed.data();
  }
  visit(piece, Stretch<T>{.parameter = parameter, .gradient = gradient, .state = state.data(), .count = piece.count});
  if constexpr (std::is_same_v<T, float>) {
    if (half && is_last) half->narrow(parameter, half_parameter, static_cast<std::size_t>(piece.count));
  }
}

}  // namespace lockstep::optim
