// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <stdexcept>

#include "kernel.hpp"

namespace lockstep::optim {

namespace {

constexpr std::size_t kMostStates = 8;

void require_supported(const Block& block) {
  if (block.dtype == DType::float32 || block.dtype == DType::float64) return;
  const std::string name = block.segments.empty() ? "?" : block.segments.front().name;
  throw ConfigError("parameter '" + name + "' is " + std::string(name_of(block.dtype)) +
                    ", but optimizers update float32 and float64 only");
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
LOCKSTEP_VECTORISED void scale(T* __restrict to, const T* __restrict from, std::int64_t count, T factor) {
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

}  // namespace

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters)
    : rule_(&rule), groups_(std::move(groups)), parameters_(&parameters) {
  for (const ParamGroup& group : groups_) {
    auto names = rule.state_names(group.options);
    if (names.size() > state_names_.size()) state_names_ = std::move(names);
  }
  if (state_names_.size() > kMostStates) throw std::logic_error("rule '" + rule.name + "' keeps too many states");
  std::map<std::string, std::size_t> numbers = group_numbers(groups_);
  for (const Block& block : parameters.blocks()) {
    require_supported(block);
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
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) {
    auto& arrays = state_.emplace_back();
    for (std::size_t slot = 0; slot < state_names_.size(); ++slot) arrays.push_back(parameters.allocate_state(b));
  }
}

std::span<std::byte> Optimizer::state(std::size_t block, std::size_t slot) {
  const Block& of = parameters_->blocks()[block];
  return {state_.at(block).at(slot).get(), static_cast<std::size_t>(of.count) * size_of(of.dtype)};
}

std::span<std::int64_t> Optimizer::steps(std::size_t block) { return steps_.at(block); }

void Optimizer::step(const GradientChange& change) {
  parameters_->finish_gradients();
  count_step();
  parameters_->write([this, &change] {
    parameters_->visit_gradients(
        [this, &change](const GradientPiece& piece) {
          if (parameters_->blocks()[piece.block].dtype == DType::float32) {
            update(piece, change, rule_->update32);
          } else {
            update(piece, change, rule_->update64);
          }
        },
        /*is_last=*/true);
  });
}

/// Counts the update of every parameter that has a gradient, and computes its coefficients.
void Optimizer::count_step() {
  std::size_t last_group = groups_.size();
  std::int64_t last_step = 0;
  Coefficients last{};
  for (std::size_t b = 0; b < steps_.size(); ++b) {
    for (std::size_t s = 0; s < steps_[b].size(); ++s) {
      if (!parameters_->has_gradient(b, s)) continue;
      const std::int64_t step = ++steps_[b][s];
      const std::size_t group = group_of_[b][s];
      if (group != last_group || step != last_step) last = rule_->coefficients(groups_[group].options, step);
      last_group = group;
      last_step = step;
      coefficients_[b][s] = last;
    }
  }
}

template <class T>
void Optimizer::update(const GradientPiece& piece, const GradientChange& change,
                       void (*apply)(const Coefficients&, const Stretch<T>&)) {
  const Block& block = parameters_->blocks()[piece.block];
  const std::int64_t begin = block.segments[piece.segment].offset + piece.begin;
  std::array<T*, kMostStates> state{};
  for (std::size_t slot = 0; slot < state_names_.size(); ++slot) {
    state[slot] = reinterpret_cast<T*>(state_[piece.block][slot].get()) + begin;
  }
  const auto* gradient = reinterpret_cast<const T*>(piece.values);
  std::array<T, kPieceElements> changed;  // uninitialised: filled only where it is used
  if (!change.is_none()) {
    scale(changed.data(), gradient, piece.count, static_cast<T>(change.factor));
    if (change.limit < std::numeric_limits<double>::infinity()) {
      clamp(changed.data(), piece.count, static_cast<T>(change.limit));
    }
    gradient = changed.data();
  }
  apply(coefficients_[piece.block][piece.segment],
        Stretch<T>{.parameter = reinterpret_cast<T*>(block.parameters) + begin,
                   .gradient = gradient,
                   .state = state.data(),
                   .count = piece.count});
}

}  // namespace lockstep::optim
