// SPDX-License-Identifier: BSD-3-Clause
// Updates of tensors by the templates of the rules: parameters, gradients and states are copied into one stack, so that
// an operation is one launch for all of them, and the results are copied back unless the update is void.
#include <torch/types.h>

#include <deque>
#include <memory>
#include <utility>
#include <variant>

#include "optim/rules/element_rule.hpp"
#include "optim/update/live_numbers.hpp"
#include "optim/update/tensor_rules.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

Coefficient& coefficient_of(Coefficients& all, std::size_t number) { return (&all.in_place<Coefficient>())[number]; }

/// The coefficients of an update. In a captured step, those that change are in the memory of the device.
struct DeviceCoefficients {
  Coefficients wide;    ///< live: [] float64
  Coefficients narrow;  ///< live: [] of the type of the parameters
  std::shared_ptr<std::deque<at::Tensor>> memory = std::make_shared<std::deque<at::Tensor>>();

  void set_live(std::size_t number, const at::Tensor& value, at::ScalarType type) {
    coefficient_of(wide, number).live = &memory->emplace_back(value);
    coefficient_of(narrow, number).live = &memory->emplace_back(value.to(type));
  }
};

DeviceCoefficients coefficients_of(const ElementRule& rule, const TensorUpdate& update) {
  const Coefficients plain = rule.coefficients(*update.options, update.step);
  DeviceCoefficients all{.wide = plain, .narrow = plain};
  for (std::size_t k = 0; update.live != nullptr && k < rule.rows->coefficients; ++k) {
    const auto value = [compute = rule.coefficients, k](const Options& options, std::int64_t step) {
      Coefficients computed = compute(options, step);
      return coefficient_of(computed, k).value;
    };
    if (coefficient_of(all.wide, k).changes) {
      all.set_live(k, update.live->number(value), update.parameters.front().scalar_type());
    } else {
      update.live->fixed(value);
    }
  }
  return all;
}

/// What is stacked: parameters, gradients, then each state.
TensorList lists_of(const TensorUpdate& update) {
  TensorList lists = concatenated(update.parameters, update.gradients);
  for (const TensorList& state : update.states) lists = concatenated(std::move(lists), state);
  return lists;
}

/// [] float64: the share of elements that are 1, of each tensor.
TensorList shares_of(const TensorList& list) {
  const TensorList sums = at::_foreach_norm(list, 1, at::kDouble);
  std::vector<at::Scalar> counts;
  for (const at::Tensor& tensor : list) counts.emplace_back(static_cast<double>(tensor.numel()));
  at::_foreach_div_(sums, counts);
  return sums;
}

/// The factors of the parameters, for each row: [R, 1] float64.
/// @param measured  rows
at::Tensor factors_of(const RowForms& forms, const Coefficients& coefficients, const TensorUpdate& update,
                      const TensorStack& stack, const at::Tensor& measured) {
  const TensorList parts = stack.parts_of(measured, update.parameters.size());
  if (forms.counts) return forms.factors(coefficients, at::Tensor(), stack.by_row(shares_of(parts)));
  TensorList norms = norms_of(concatenated(update.parameters, parts));
  at::Tensor zero;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (forms.adapts(coefficients, update.dims[i])) continue;
    if (!zero.defined()) zero = at::zeros_like(norms[i]);
    norms[i] = norms[parts.size() + i] = zero;
  }
  const TensorList by_row = stack.by_row(norms).chunk(2);
  return forms.factors(coefficients, by_row[0], by_row[1]);
}

/// Measures the rows, and multiplies the rule's coefficient by what follows for each parameter.
void adapt(const RowForms& forms, const TensorUpdate& update, const TensorStack& stack,
           DeviceCoefficients& coefficients, ElementRows& rows) {
  forms.measure(coefficients.narrow, rows);
  const at::Tensor factors = factors_of(forms, coefficients.wide, update, stack, rows.measured);
  const at::Tensor live = (forms.adapted(coefficients.wide) * factors).to(rows.parameter.scalar_type());
  forms.adapted(coefficients.narrow).live = &coefficients.memory->emplace_back(live);
}

/// Puts the results of an update in the place of parameters and states.
void assign_rows(const TensorUpdate& update, const TensorStack& stack, ElementRows& rows) {
  TensorList targets = update.parameters;
  TensorList values = stack.parts_of(rows.parameter, update.parameters.size());
  for (std::size_t k = 0; k < update.states.size(); ++k) {
    if (rows.state[k].is_same(rows.parameter)) rows.state[k] = rows.parameter.clone();
    targets = concatenated(std::move(targets), update.states[k]);
    values = concatenated(std::move(values), stack.parts_of(rows.state[k], update.parameters.size()));
  }
  assign(update, targets, values);
}

/// The update of some of the parameters.
void update_stack(const Rule& rule, const TensorUpdate& update, DeviceCoefficients coefficients) {
  const RowForms& forms = *rule.elements()->rows;
  const std::size_t count = update.parameters.size();
  const TensorStack stack = TensorStack::of(lists_of(update));
  ElementRows rows;
  rows.parameter = stack.rows_of(0, count);
  rows.gradient = stack.rows_of(count, count);
  for (std::size_t k = 0; k < update.states.size(); ++k) rows.state[k] = stack.rows_of((2 + k) * count, count);
  if (const auto* const measured = std::get_if<TensorRule>(&rule.kind)) {
    if (measured->needs(*update.options).sums) adapt(forms, update, stack, coefficients, rows);
  }
  forms.update(coefficients.narrow, rows);
  if (forms.descends)
    return descend(update, stack.parts_of(rows.gradient, count), /*weight_decay=*/0, /*maximize=*/false);
  assign_rows(update, stack, rows);
}

}  // namespace

void update_tensors(const Rule& rule, const TensorUpdate& update) {
  if (const auto* const whole = std::get_if<WholeRule>(&rule.kind)) return whole->update(update);
  if (const TensorForm fused = rule.elements()->fused) return fused(update);
  const DeviceCoefficients coefficients = coefficients_of(*rule.elements(), update);
  for (const TensorUpdate& part : parts_for_stacks(update)) update_stack(rule, part, coefficients);
}

}  // namespace lockstep::optim
