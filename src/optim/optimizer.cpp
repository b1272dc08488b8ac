// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernel.hpp"
#include "piece_sums.hpp"

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
    throw ConfigError("the groups of an optimizer cannot keep different states of rule '" + rule.name + "'");
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
  step_by_group(std::vector<GradientChange>(groups_.size(), change));
}

void Optimizer::step_by_group(Changes changes) {
  if (changes.size() != groups_.size()) throw std::logic_error("an update wants one change for each group");
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
      if (!is_updated) continue;
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

/// Calls visit(piece, stretch) for every piece of this rank, with the gradient as it enters the update.
template <class Visit>
void Optimizer::visit_stretches(Changes changes, bool is_last, const Visit& visit) {
  parameters_->visit_gradients(
      [&](const GradientPiece& piece) {
        const GradientChange& change = changes[group_of_[piece.block][piece.segment]];
        if (parameters_->blocks()[piece.block].dtype == DType::float32) {
          visit_stretch<float>(piece, change, visit);
        } else {
          visit_stretch<double>(piece, change, visit);
        }
      },
      is_last);
}

template <class T, class Visit>
void Optimizer::visit_stretch(const GradientPiece& piece, const GradientChange& change, const Visit& visit) {
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
  visit(piece, Stretch<T>{.parameter = reinterpret_cast<T*>(block.parameters) + begin,
                          .gradient = gradient,
                          .state = state.data(),
                          .count = piece.count});
}

}  // namespace lockstep::optim
