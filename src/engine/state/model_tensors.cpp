// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/model_tensors.hpp"

#include <torch/types.h>

#include <algorithm>
#include <map>
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

namespace {

using Write = std::function<void(const NamedTensor&)>;
using Inside = std::vector<const NamedTensor*>;  // parameters that one store holds

struct Places {
  Inside inside;
  Inside outside;
};

Places places_of(const parallel::ParameterStore& store, const std::vector<NamedTensor>& parameters) {
  std::set<const void*> stored;
  for (std::size_t i = 0; i < store.size(); ++i) stored.insert(store.parameter(i).tensor.unsafeGetTensorImpl());
  Places places;
  for (const NamedTensor& parameter : parameters) {
    const bool is_inside = stored.contains(parameter.tensor.unsafeGetTensorImpl());
    (is_inside ? places.inside : places.outside).push_back(&parameter);
  }
  return places;
}

void write_each(const Inside& parameters, const Write& write) {
  for (const NamedTensor* const parameter : parameters) write(*parameter);
}

/// Each rank writes its part.
void write_parts(parallel::ParameterStore& store, const Inside& inside, const Write& write) {
  const auto part = static_cast<std::size_t>(store.node_ranks().rank());
  std::vector<std::int64_t> loads(static_cast<std::size_t>(store.node_ranks().size()));
  std::map<const void*, std::size_t> writers;  // equal on every rank
  for (const NamedTensor* const parameter : inside) {
    const auto least = static_cast<std::size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    const auto [writer, is_new] = writers.emplace(parameter->tensor.unsafeGetTensorImpl(), least);
    if (is_new) loads[least] += parameter->tensor.numel();
    if (writer->second == part) write(*parameter);
  }
}

}  // namespace

void write_parameters(parallel::ParameterStore& store, const std::vector<NamedTensor>& parameters, const Write& write) {
  const Places places = places_of(store, parameters);
  store.write_whole([&] { write_each(places.inside, write); });
  write_each(places.outside, write);
}

void write_divided_parameters(parallel::ParameterStore& store, const std::vector<NamedTensor>& parameters,
                              const Write& write) {
  if (store.shards() != nullptr) return write_parameters(store, parameters, write);
  const Places places = places_of(store, parameters);
  store.write([&] { write_parts(store, places.inside, write); });
  write_each(places.outside, write);
}

}  // namespace lockstep::engine
