// SPDX-License-Identifier: BSD-3-Clause
// Updates of tensors by the templates of the rules: parameters, gradients and states are copied into one stack, so that
// an operation is one launch for all of them, and the results are copied back unless the update is void.
#include <torch/types.h>

#include <deque>
#include <memory>
#include <numeric>
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

/// The lists of an update in one stack.
class StackedUpdate {
 public:
  explicit StackedUpdate(const TensorUpdate& update)
      : count_(update.parameters.size()), stack_(TensorStack::of(lists_of(update))) {}

  std::size_t count() const noexcept { return count_; }
  /// [R, kRowElements] The rows of one list: parameters, gradients, then each state.
  at::Tensor rows(std::size_t list) const {
    const std::int64_t length = stack_.first_row(count_);
    return stack_.rows().narrow(0, static_cast<std::int64_t>(list) * length, length);
  }
  /// The tensors of rows that are laid out like those of a list.
  TensorList parts_of(const at::Tensor& rows) const { return stack_.parts_of(rows, count_); }
  /// [R, 1] Repeats a value for the rows of each parameter.
  at::Tensor by_row(const TensorList& values) const { return stack_.by_row(values); }

 private:
  static TensorList lists_of(const TensorUpdate& update) {
    TensorList lists = update.parameters;
    lists.insert(lists.end(), update.gradients.begin(), update.gradients.end());
    for (const TensorList& state : update.states) lists.insert(lists.end(), state.begin(), state.end());
    return lists;
  }

  std::size_t count_;
  TensorStack stack_;
};

/// [P] float64: the shares of elements that are 1.
at::Tensor shares_of(const TensorList& list) {
  const TensorList sums = at::_foreach_norm(list, 1, at::kDouble);
  std::vector<at::Scalar> counts;
  for (const at::Tensor& tensor : list) counts.emplace_back(static_cast<double>(tensor.numel()));
  at::_foreach_div_(sums, counts);
  return at::stack(sums);
}

/// The factors of the parameters: [P] float64.
at::Tensor factors_of(const RowForms& forms, const Coefficients& coefficients, const TensorList& parameters,
                      const TensorList& measured) {
  if (forms.counts) return forms.factors(coefficients, at::Tensor(), shares_of(measured));
  TensorList both = parameters;
  both.insert(both.end(), measured.begin(), measured.end());
  const at::Tensor norms = at::stack(norms_of(both));
  const auto count = static_cast<std::int64_t>(parameters.size());
  return forms.factors(coefficients, norms.narrow(0, 0, count), norms.narrow(0, count, count));
}

/// Measures the rows, and multiplies the rule's coefficient by what follows for each parameter.
void adapt(const RowForms& forms, const TensorUpdate& update, const StackedUpdate& stacked,
           DeviceCoefficients& coefficients, ElementRows& rows) {
  forms.measure(coefficients.narrow, rows);
  const Coefficient& adapted = forms.adapted(coefficients.wide);
  const at::Tensor factors = factors_of(forms, coefficients.wide, update.parameters, stacked.parts_of(rows.measured));
  TensorList values = (adapted * factors).unbind();
  at::Tensor unadapted;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (forms.adapts(coefficients.narrow, update.dims[i])) continue;
    if (!unadapted.defined()) unadapted = adapted * at::ones({}, factors.options());
    values[i] = unadapted;
  }
  const at::Tensor live = stacked.by_row(values).to(rows.parameter.scalar_type());
  forms.adapted(coefficients.narrow).live = &coefficients.memory->emplace_back(live);
}

void adapt_to_norm(const RowForms& forms, const TensorUpdate& update, DeviceCoefficients& coefficients) {
  Coefficient& scaled = forms.scaled(coefficients.narrow);
  const at::Tensor factor = reciprocal(forms.norm_divisor(coefficients.wide, update.gradient_norm));
  const at::Tensor live = (scaled * factor).to(update.parameters.front().scalar_type());
  scaled.live = &coefficients.memory->emplace_back(live);
}

/// Puts the results of an update in the place of parameters and states.
void assign_rows(const TensorUpdate& update, const StackedUpdate& stacked, ElementRows& rows) {
  TensorList targets = update.parameters;
  TensorList values = stacked.parts_of(rows.parameter);
  for (std::size_t k = 0; k < update.states.size(); ++k) {
    if (rows.state[k].is_same(rows.parameter)) rows.state[k] = rows.parameter.clone();
    const TensorList parts = stacked.parts_of(rows.state[k]);
    targets.insert(targets.end(), update.states[k].begin(), update.states[k].end());
    values.insert(values.end(), parts.begin(), parts.end());
  }
  assign(update, targets, values);
}

/// The update of some of the parameters.
void update_stack(const Rule& rule, const TensorUpdate& update, DeviceCoefficients coefficients) {
  const RowForms& forms = *rule.elements()->rows;
  const StackedUpdate stacked(update);
  ElementRows rows;
  rows.parameter = stacked.rows(0);
  rows.gradient = stacked.rows(1);
  for (std::size_t k = 0; k < update.states.size(); ++k) rows.state[k] = stacked.rows(2 + k);
  if (const auto* const measured = std::get_if<TensorRule>(&rule.kind)) {
    const Needs needs = measured->needs(*update.options);
    if (needs.gradient_norm) adapt_to_norm(forms, update, coefficients);
    if (needs.sums) adapt(forms, update, stacked, coefficients, rows);
  }
  forms.update(coefficients.narrow, rows);
  if (forms.descends) return descend(update, stacked.parts_of(rows.gradient), /*weight_decay=*/0, /*maximize=*/false);
  assign_rows(update, stacked, rows);
}

}  // namespace

void update_by_rows(const Rule& rule, const TensorUpdate& update) {
  const DeviceCoefficients coefficients = coefficients_of(*rule.elements(), update);
  std::size_t first = 0;
  for (const TensorList& part : divided_for_stacks(update.parameters)) {
    std::vector<std::size_t> members(part.size());
    std::iota(members.begin(), members.end(), first);
    first += part.size();
    update_stack(rule, selected(update, members), coefficients);
  }
}

void update_tensors(const Rule& rule, const TensorUpdate& update) {
  if (const auto* const whole = std::get_if<WholeRule>(&rule.kind)) return whole->update(update);
  if (const TensorForm fused = rule.elements()->fused) return fused(update);
  update_by_rows(rule, update);
}

}  // namespace lockstep::optim
