// SPDX-License-Identifier: BSD-3-Clause
// Steps of rules that update ranges of elements.
#include <lockstep/optim/optimizer.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/numbers/dtype.hpp"
#include "core/numbers/processor_level.hpp"
#include "kernels/optimizers.hpp"
#include "optim/rules/piece_sums.hpp"

namespace lockstep::optim {

namespace {

/// Updates masters after other code has changed the parameters, such as restoring a checkpoint.
void follow(const std::byte* parameters, float* masters, std::int64_t count, const HalfFormat& format) {
  std::array<std::byte, kPieceElements * kHalfBytes> rounded;  // uninitialized: filled as far as it is used
  const auto bytes = static_cast<std::size_t>(count) * kHalfBytes;
  format.narrow(masters, rounded.data(), static_cast<std::size_t>(count));
  if (std::memcmp(rounded.data(), parameters, bytes) == 0) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const bool is_same = std::memcmp(rounded.data() + i * kHalfBytes, parameters + i * kHalfBytes, kHalfBytes) == 0;
    if (!is_same) format.widen(parameters + i * kHalfBytes, masters + i, 1);
  }
}

template <class T>
LOCKSTEP_INLINE void scale(T* target, const T* from, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = from[i] * factor;
}

/// A NaN stays.
template <class T>
LOCKSTEP_INLINE void clamp(T* values, std::int64_t count, T limit) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = values[i];
    values[i] = value > limit ? limit : value < -limit ? -limit : value;
  }
}

/// The gradient as it enters the update.
/// @param changed  memory for it, if it is not the given one
template <class T>
const T* changed_gradient(const T* gradient, const GradientChange& change, std::int64_t count, T* changed) {
  if (change.is_none()) return gradient;
  at_level<scale<T>>(changed, gradient, count, static_cast<T>(change.factor));
  if (change.limit < std::numeric_limits<double>::infinity())
    at_level<clamp<T>>(changed, count, static_cast<T>(change.limit));
  return changed;
}

}  // namespace

void Optimizer::step_by(const ElementRule& rule, Changes changes) {
  parameters_->finish_gradients();
  count_step();
  compute_coefficients(rule);
  update_elements(rule, changes);
}

void Optimizer::step_by(const TensorRule& rule, Changes changes) {
  parameters_->finish_gradients();
  count_step();
  compute_coefficients(rule.elements);
  const auto [gradient_norm, sums] = needs();
  if (gradient_norm) adapt_to_norm(rule, changes);
  if (sums) adapt_to_sums(rule, changes);
  update_elements(rule.elements, changes);
}

/// The coefficients for every parameter that has a gradient, after count_step.
void Optimizer::compute_coefficients(const ElementRule& rule) {
  std::size_t last_group = groups_.size();
  std::int64_t last_step = 0;
  Coefficients last;
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    if (!parameters_->has_gradient(b, s)) return;
    const std::size_t group = group_of_[b][s];
    const std::int64_t step = steps_[b][s];
    if (group != last_group || step != last_step) last = rule.coefficients(groups_[group].options, step);
    last_group = group;
    last_step = step;
    coefficients_[b][s] = last;
  });
}

void Optimizer::update_elements(const ElementRule& rule, Changes changes) {
  parameters_->write([&] {
    visit_ranges(changes, /*is_last=*/true, [&](const GradientPiece& piece, const auto& range) {
      rule.update(coefficients_[piece.block][piece.segment], range);
    });
  });
}

/// The needs of all groups together.
Needs Optimizer::needs() const {
  Needs all;
  const auto* const rule = std::get_if<TensorRule>(&rule_->kind);
  for (const ParamGroup& group : groups_) {
    const Needs of_group = rule != nullptr ? rule->needs(group.options) : Needs();
    all.gradient_norm = all.gradient_norm || of_group.gradient_norm;
    all.sums = all.sums || of_group.sums;
  }
  return all;
}

void Optimizer::adapt_to_norm(const TensorRule& rule, Changes changes) {
  const PieceNumbers pieces(parameters_->blocks());
  std::vector<double> squares(pieces.count());
  visit_ranges(changes, /*is_last=*/false, [&](const GradientPiece& piece, const auto& range) {
    squares[pieces.place_of(piece)] = kernels::sum_of_squares(range.gradient, range.count);
  });
  parameters_->sum_over_owners(squares);  // each has one owner: the others add 0
  const double norm = std::sqrt(sum_by_tree(squares));
  for_each_segment(parameters_->blocks(), [&](std::size_t b, std::size_t s) {
    const bool is_adapted = parameters_->has_gradient(b, s) && rule.needs(options_of(b, s)).gradient_norm;
    if (is_adapted) rule.adapt_to_norm(coefficients_[b][s], norm);
  });
}

void Optimizer::adapt_to_sums(const TensorRule& rule, Changes changes) {
  const std::span<const FlatBlock> blocks = parameters_->blocks();
  const PieceNumbers pieces(blocks);
  std::vector<double> values(pieces.count() * Sums().size());  // one row for each sum
  const auto row = [&](std::size_t k) { return std::span(values).subspan(k * pieces.count(), pieces.count()); };
  visit_ranges(changes, /*is_last=*/false, [&](const GradientPiece& piece, const auto& range) {
    if (!rule.needs(options_of(piece.block, piece.segment)).sums) return;
    const Sums measured = rule.measure(coefficients_[piece.block][piece.segment], range);
    for (std::size_t k = 0; k < measured.size(); ++k) row(k)[pieces.place_of(piece)] = measured[k];
  });
  parameters_->sum_over_owners(values);  // each has one owner: the others add 0
  for_each_segment(blocks, [&](std::size_t b, std::size_t s) {
    if (!parameters_->has_gradient(b, s) || !rule.needs(options_of(b, s)).sums) return;
    Sums sums{};
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] = sum_by_tree(pieces.part(row(k), b, s));
    rule.adapt(coefficients_[b][s], sums, blocks[b].segments[s]);
  });
}

/// Calls visit for every piece of this rank. Its values are the gradient as it enters the update.
void Optimizer::visit_pieces(Changes changes, const std::function<void(const GradientPiece&)>& visit) {
  visit_ranges(changes, /*is_last=*/true, [&](GradientPiece piece, const auto& range) {
    piece.values = reinterpret_cast<const std::byte*>(range.gradient);
    visit(piece);
  });
}

/// Calls visit(piece, range) for every piece of this rank, with the gradient as it enters the update. In the last
/// visit, several pieces of a parameter may come as one range, unless they are measured piece by piece.
template <class Visit>
void Optimizer::visit_ranges(Changes changes, bool is_last, const Visit& visit) {
  const bool may_join = is_last && !std::holds_alternative<TensorRule>(rule_->kind);
  parameters_->visit_gradients(
      [&](const GradientPiece& given) {
        const FlatBlock& block = parameters_->blocks()[given.block];
        const GradientChange& change = changes[group_of_[given.block][given.segment]];
        const bool is_taken_as_is = may_join && change.is_none() && !block.is_half();
        for_each_part(given, is_taken_as_is ? given.count : kPieceElements, size_of(block.dtype),
                      [&](const GradientPiece& piece) {
                        if (block.dtype == DType::float64) {
                          visit_range<double>(piece, change, is_last, visit);
                        } else {
                          visit_range<float>(piece, change, is_last, visit);
                        }
                      });
      },
      is_last);
}

template <class T, class Visit>
void Optimizer::visit_range(const GradientPiece& piece, const GradientChange& change, bool is_last,
                            const Visit& visit) {
  const FlatBlock& block = parameters_->blocks()[piece.block];
  const std::int64_t begin = block.segments[piece.segment].offset + piece.begin;
  std::array<T*, kMaxStates> state{};
  for (std::size_t slot = 0; slot < state_names_.size() && !rule_->is_whole(); ++slot) {
    state[slot] = reinterpret_cast<T*>(state_[piece.block][slot].get()) + begin;
  }
  auto* parameter = reinterpret_cast<T*>(block.parameters) + begin;
  const auto* gradient = reinterpret_cast<const T*>(piece.values);
  std::array<T, kPieceElements> changed;  // uninitialized: filled only where it is used
  std::array<T, kPieceElements> wide;     // likewise
  std::byte* const half_parameter = block.parameters + begin * static_cast<std::int64_t>(kHalfBytes);
  if constexpr (std::is_same_v<T, float>) {
    if (block.is_half()) {
      half_format(block.dtype).widen(piece.values, changed.data(), static_cast<std::size_t>(piece.count));
      gradient = changed.data();
      parameter = half_.has_masters ? state[rule_states_] : wide.data();
      if (!rule_->is_whole()) widen_parameter(half_parameter, parameter, piece);
    }
  }
  gradient = changed_gradient(gradient, change, piece.count, changed.data());
  visit(piece,
        ElementRange<T>{.parameter = parameter, .gradient = gradient, .state = state.data(), .count = piece.count});
  if constexpr (std::is_same_v<T, float>) {
    if (block.is_half() && is_last && !rule_->is_whole()) round_parameter(parameter, half_parameter, piece);
  }
}

void Optimizer::widen_parameter(const std::byte* from, float* target, const GradientPiece& piece) const {
  const HalfFormat format = half_format(parameters_->blocks()[piece.block].dtype);
  if (half_.has_masters) return follow(from, target, piece.count, format);
  format.widen(from, target, static_cast<std::size_t>(piece.count));
}

void Optimizer::round_parameter(const float* from, std::byte* target, const GradientPiece& piece) const {
  if (half_.rounds_stochastically) {
    return kernels::round_stochastically(from, target, piece.count, piece.begin, key_of(piece.block, piece.segment));
  }
  half_format(parameters_->blocks()[piece.block].dtype).narrow(from, target, static_cast<std::size_t>(piece.count));
}

}  // namespace lockstep::optim
