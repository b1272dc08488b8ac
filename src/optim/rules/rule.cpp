// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/optim/rule.hpp>

namespace lockstep::optim {

const ElementRule* Rule::elements() const noexcept {
  const auto* const measured = std::get_if<TensorRule>(&kind);
  return measured != nullptr ? &measured->elements : std::get_if<ElementRule>(&kind);
}

bool Rule::supports_tensors() const noexcept {
  const ElementRule* const rule = elements();
  return rule == nullptr || rule->fused != nullptr || rule->rows != nullptr;
}

StateShape Rule::state_shape() const noexcept {
  if (const auto* const whole = std::get_if<WholeRule>(&kind)) return whole->state_shape;
  const auto* const rule = std::get_if<ClosureRule>(&kind);
  return rule != nullptr ? rule->state_shape : nullptr;
}

}  // namespace lockstep::optim
