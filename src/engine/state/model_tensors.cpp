// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/model_tensors.hpp"

#include <torch/types.h>

#include <set>

namespace lockstep::engine {

std::vector<NamedTensor> parameters_of(const models::Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : model.named_parameters()) parameters.push_back({item.key(), item.value()});
  return parameters;
}

std::vector<NamedTensor> buffers_of(const models::Model& model) {
  std::vector<NamedTensor> buffers;
  for (const auto& item : model.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

void write_parameters(const std::vector<parallel::ParameterStore*>& stores, const std::vector<NamedTensor>& parameters,
                      const std::function<void(const NamedTensor&)>& write) {
  std::set<const void*> stored;
  for (parallel::ParameterStore* const store : stores) {
    std::set<const void*> here;
    for (std::size_t i = 0; i < store->size(); ++i) here.insert(store->parameter(i).tensor.unsafeGetTensorImpl());
    store->write_whole([&] {
      for (const NamedTensor& parameter : parameters) {
        if (here.contains(parameter.tensor.unsafeGetTensorImpl())) write(parameter);
      }
    });
    stored.merge(here);
  }
  for (const NamedTensor& parameter : parameters) {
    if (!stored.contains(parameter.tensor.unsafeGetTensorImpl())) write(parameter);
  }
}

}  // namespace lockstep::engine
