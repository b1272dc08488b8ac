// SPDX-License-Identifier: BSD-3-Clause
#include "batch/sample_values.hpp"

namespace lockstep::batch {

const ValueList* values_of_samples(const Value& value, std::int64_t samples) {
  const Value* list = &value;
  if (value.is<DataContainer>()) {
    const DataContainer& container = value.as<DataContainer>();
    if (!container.options().cpu_only || !container.data().is<ValueList>()) return nullptr;
    const auto& groups = container.data().as<ValueList>();
    if (groups.size() != 1) return nullptr;
    list = &groups.front();
  }
  if (!list->is<ValueList>()) return nullptr;
  const auto& values = list->as<ValueList>();
  const bool is_of_samples = !values.empty() && static_cast<std::int64_t>(values.size()) == samples;
  return is_of_samples && !values.front().is<at::Tensor>() ? &values : nullptr;
}

}  // namespace lockstep::batch
