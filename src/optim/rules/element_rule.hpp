// SPDX-License-Identifier: BSD-3-Clause
// Rules are structs of coefficients with templates over the type of number, see arithmetic.hpp:
//
//     struct Mine {
//       Coefficient sign, lr;
//       static constexpr std::size_t kStates = 1;
//       template <class T>
//       LOCKSTEP_INLINE void update(Element<T>& e) const;   // changes e.parameter and e.state
//     };
//     Mine mine_coefficients(const Options& options, std::int64_t step);
//     Rule row = {..., .kind = element_rule<mine_coefficients>()};
//
// Choices of operations that are equal for all elements are variants, `template <unsigned kVariant, class T> update`,
// with kVariants, `unsigned variant() const` and `states(variant)`.
//
// A rule with sums over whole parameters has, instead of `update`, a `direction` from an element, which may change
// states and replace the gradient; `measured`, a value of which sums are formed; and `apply`, which moves the
// parameter. Between them, the coefficient kAdapted is multiplied by the `factor` that follows from the sums.
#pragma once

#include <lockstep/optim/rule.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/optimizers.hpp"
#include "optim/rules/arithmetic.hpp"

namespace lockstep::optim {

/// All elements of an update.
struct ElementRows : Element<at::Tensor> {
  at::Tensor direction;
  at::Tensor measured;  ///< undefined, like the direction, until it was measured
};

/// The change of a gradient by most rules, sign * gradient + l2_coefficient * parameter, and decoupled weight decay.
struct GradientTerms {
  Coefficient sign = 1;            ///< -1 to maximize
  Coefficient l2_coefficient = 0;  ///< weight decay that is added to the gradient
  Coefficient decay_factor = 1;    ///< decoupled weight decay: multiplies the parameter

  template <class T>
  LOCKSTEP_INLINE T gradient(const Element<T>& e) const {
    return plus(sign * e.gradient, l2_coefficient, e.parameter);
  }
};

inline GradientTerms gradient_terms(const Options& options, bool is_decoupled) {
  const double weight_decay = options.at("weight_decay");
  GradientTerms terms{.sign = options.at("maximize") != 0 ? -1.0 : 1.0};
  if (is_decoupled) {
    terms.decay_factor = changing(1 - options.at("lr") * weight_decay);
  } else {
    terms.l2_coefficient = weight_decay;
  }
  return terms;
}

/// The first two states of Adam and its relatives: the mean of the gradients and that of their squares.
struct TwoMoments {
  Coefficient take1;  ///< 1 - beta1
  Coefficient beta2;
  Coefficient take2;  ///< 1 - beta2

  template <class T>
  LOCKSTEP_INLINE void learn(Element<T>& e, const T& gradient) const {
    e.state[0] = towards(e.state[0], gradient, take1);
    e.state[1] = plus_square(beta2 * e.state[1], take2, gradient);
  }
};

inline TwoMoments moments(const Options& options) {
  return {.take1 = 1 - options.at("beta1"), .beta2 = options.at("beta2"), .take2 = 1 - options.at("beta2")};
}

/// 1 - beta^step: corrects a mean that began at zero.
inline double bias_correction(double beta, std::int64_t step) { return 1 - std::pow(beta, static_cast<double>(step)); }

/// The templates of a rule for tensors.
struct RowForms {
  std::size_t coefficients;  ///< number of Coefficient in the rule's struct
  void (*update)(const Coefficients&, ElementRows&);

  // Rules with sums only.
  void (*measure)(const Coefficients&, ElementRows&) = nullptr;
  bool counts = false;    ///< measured values are 0 or 1, and the share of 1 counts
  bool descends = false;  ///< `update` leaves a gradient for sgd without weight decay
  bool (*adapts)(const Coefficients&, std::size_t dims) = nullptr;  ///< false: as if the norms were 0
  /// @param parameter_norms, measured  [R, 1] float64: 2-norms, or shares; one for each row, as the result
  at::Tensor (*factors)(const Coefficients&, const at::Tensor& parameter_norms, const at::Tensor& measured) = nullptr;
  Coefficient& (*adapted)(Coefficients&) = nullptr;
};

template <class Formula>
inline constexpr bool has_direction = requires {
  Formula::kAdapted;
};

template <class Formula>
constexpr unsigned variants_of() {
  if constexpr (requires { Formula::kVariants; }) return Formula::kVariants;
  return 1;
}

template <class Formula, unsigned kVariant>
constexpr std::size_t states_of() {
  if constexpr (variants_of<Formula>() > 1) {
    return Formula::states(kVariant);
  } else {
    return Formula::kStates;
  }
}

template <unsigned kVariant, class Formula, class T>
LOCKSTEP_INLINE void update_element(const Formula& rule, Element<T>& element) {
  if constexpr (has_direction<Formula>) {
    const T direction = rule.template direction<kVariant>(element);
    rule.template apply<kVariant>(element, direction, rule.measured(element, direction));
  } else if constexpr (variants_of<Formula>() > 1) {
    rule.template update<kVariant>(element);
  } else {
    rule.update(element);
  }
}

/// Calls visit(element, i) for every element of a range, and stores the states and, if kMoves, the parameter.
template <std::size_t kStates, bool kMoves, class T, class Visit>
LOCKSTEP_INLINE void visit_elements(const ElementRange<T>& range, const Visit& visit) {
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict first = kStates > 0 ? range.state[0] : nullptr;
  T* __restrict second = kStates > 1 ? range.state[1] : nullptr;
  T* __restrict third = kStates > 2 ? range.state[2] : nullptr;
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    Element<T> element{parameter[i], gradient[i], {}};
    if constexpr (kStates > 0) element.state[0] = first[i];
    if constexpr (kStates > 1) element.state[1] = second[i];
    if constexpr (kStates > 2) element.state[2] = third[i];
    visit(element, i);
    if constexpr (kMoves) parameter[i] = element.parameter;
    if constexpr (kStates > 0) first[i] = element.state[0];
    if constexpr (kStates > 1) second[i] = element.state[1];
    if constexpr (kStates > 2) third[i] = element.state[2];
  }
}

template <unsigned kVariant, class Formula, class T>
LOCKSTEP_INLINE void update_range(const Formula& given, const ElementRange<T>& range) {
  const Formula rule = given;
  const auto update = [&](Element<T> & element, std::int64_t) __attribute__((always_inline)) {
    update_element<kVariant>(rule, element);
  };
  visit_elements<states_of<Formula, kVariant>(), /*kMoves=*/true>(range, update);
}

template <unsigned kVariant, class Formula, class T>
LOCKSTEP_INLINE void measure_range(const Formula& given, const ElementRange<T>& range, T* __restrict measured) {
  const Formula rule = given;
  const auto measure = [&](Element<T> & element, std::int64_t i) __attribute__((always_inline)) {
    const T direction = rule.template direction<kVariant>(element);
    measured[i] = rule.measured(element, direction);
  };
  visit_elements<states_of<Formula, kVariant>(), /*kMoves=*/false>(range, measure);
}

/// The number of elements with a measured value of 1.
template <unsigned kVariant, class Formula, class T>
LOCKSTEP_INLINE std::int64_t count_range(const Formula& given, const ElementRange<T>& range) {
  const Formula rule = given;
  std::int64_t count = 0;
  const auto add = [&](Element<T> & element, std::int64_t) __attribute__((always_inline)) {
    const T direction = rule.template direction<kVariant>(element);
    count += rule.measured(element, direction) > 0 ? 1 : 0;
  };
  visit_elements<states_of<Formula, kVariant>(), /*kMoves=*/false>(range, add);
  return count;
}

/// Calls visit(std::integral_constant) for the variant of a rule.
template <unsigned kVariant = 0, class Formula, class Visit>
auto visit_variant(const Formula& rule, const Visit& visit) {
  if constexpr (kVariant + 1 < variants_of<Formula>()) {
    if (rule.variant() != kVariant) return visit_variant<kVariant + 1>(rule, visit);
  }
  return visit(std::integral_constant<unsigned, kVariant>());
}

// ---- the functions of a row

template <class Formula, class T>
void update_elements_by(const Coefficients& coefficients, const ElementRange<T>& range) {
  const auto rule = coefficients.as<Formula>();
  visit_variant(rule, [&](auto variant) { at_level<update_range<variant(), Formula, T>>(rule, range); });
}

/// The squares of the parameter and of what is measured; or the number of measured values of 1.
template <class Formula, class T>
Sums measure_elements_by(const Coefficients& coefficients, const ElementRange<T>& range) {
  const auto rule = coefficients.as<Formula>();
  return visit_variant(rule, [&](auto variant) -> Sums {
    if constexpr (Formula::kCounts) {
      return {0, static_cast<double>(at_level<count_range<variant(), Formula, T>>(rule, range))};
    } else {
      std::array<T, kPieceElements> measured;  // uninitialized: filled as far as it is used
      at_level<measure_range<variant(), Formula, T>>(rule, range, measured.data());
      return {kernels::sum_of_squares(range.parameter, range.count),
              kernels::sum_of_squares(measured.data(), range.count)};
    }
  });
}

template <class Formula>
void adapt_to_sums_by(Coefficients& coefficients, const Sums& sums, const Segment& segment) {
  auto& rule = coefficients.in_place<Formula>();
  if constexpr (requires { rule.was_measured; }) rule.was_measured = 1;
  if (!rule.adapts(segment.shape.size())) return;
  const double measured = Formula::kCounts ? sums[1] / static_cast<double>(segment.count) : std::sqrt(sums[1]);
  (rule.*Formula::kAdapted).value *= rule.factor(std::sqrt(sums[0]), measured);
}

template <class Formula>
void adapt_to_norm_by(Coefficients& coefficients, double gradient_norm) {
  auto& rule = coefficients.in_place<Formula>();
  (rule.*Formula::kScaled).value /= rule.norm_divisor(gradient_norm);
}

template <class Formula>
void update_rows_by(const Coefficients& coefficients, ElementRows& rows) {
  const auto rule = coefficients.as<Formula>();
  visit_variant(rule, [&](auto variant) {
    Element<at::Tensor>& elements = rows;
    if constexpr (has_direction<Formula>) {
      if (!rows.direction.defined()) rows.direction = rule.template direction<variant()>(elements);
      rule.template apply<variant()>(elements, rows.direction, rows.measured);
    } else {
      update_element<variant()>(rule, elements);
    }
  });
}

template <class Formula>
void measure_rows_by(const Coefficients& coefficients, ElementRows& rows) {
  const auto rule = coefficients.as<Formula>();
  Element<at::Tensor>& elements = rows;
  visit_variant(rule, [&](auto variant) { rows.direction = rule.template direction<variant()>(elements); });
  rows.measured = rule.measured(elements, rows.direction);
}

template <class Formula>
constexpr RowForms row_forms() {
  static_assert(sizeof(Formula) % sizeof(Coefficient) == 0, "a rule consists of coefficients");
  RowForms forms{.coefficients = sizeof(Formula) / sizeof(Coefficient), .update = update_rows_by<Formula>};
  if constexpr (has_direction<Formula>) {
    forms.measure = measure_rows_by<Formula>;
    forms.counts = Formula::kCounts;
    forms.descends = requires { Formula::kDescends; };
    forms.adapts = [](const Coefficients& c, std::size_t dims) { return c.as<Formula>().adapts(dims); };
    forms.factors = [](const Coefficients& c, const at::Tensor& parameter_norms, const at::Tensor& measured) {
      return c.as<Formula>().factor(parameter_norms, measured);
    };
    forms.adapted = [](Coefficients& c) -> Coefficient& { return c.in_place<Formula>().*Formula::kAdapted; };
  }
  return forms;
}
template <class Formula>
inline constexpr RowForms kRowForms = row_forms<Formula>();

/// The struct that a function computes from the options, for an update number from 1.
template <auto kCompute>
using FormulaOf = decltype(kCompute(Options(), 0));

template <auto kCompute>
ElementRule loops() {
  return {.coefficients = [](const Options& options,
                             std::int64_t step) { return Coefficients::of(kCompute(options, step)); },
          .update32 = update_elements_by<FormulaOf<kCompute>, float>,
          .update64 = update_elements_by<FormulaOf<kCompute>, double>};
}

/// @tparam kCompute  computes the coefficients of the rule
/// @param fused      see ElementRule
template <auto kCompute>
ElementRule element_rule(TensorForm fused = nullptr) {
  ElementRule rule = loops<kCompute>();
  rule.fused = fused;
  rule.rows = &kRowForms<FormulaOf<kCompute>>;
  return rule;
}

/// @tparam kFused  the form for GPUs; null = the template of the rule
template <auto kCompute, TensorForm kFused = nullptr>
TensorRule tensor_rule(Needs (*needs)(const Options& options)) {
  TensorRule rule{.elements = loops<kCompute>(),
                  .needs = needs,
                  .measure32 = measure_elements_by<FormulaOf<kCompute>, float>,
                  .measure64 = measure_elements_by<FormulaOf<kCompute>, double>,
                  .adapt = adapt_to_sums_by<FormulaOf<kCompute>>};
  rule.elements.fused = kFused;
  if constexpr (kFused == nullptr) rule.elements.rows = &kRowForms<FormulaOf<kCompute>>;
  if constexpr (requires { FormulaOf<kCompute>::kScaled; }) rule.adapt_to_norm = adapt_to_norm_by<FormulaOf<kCompute>>;
  return rule;
}

}  // namespace lockstep::optim
