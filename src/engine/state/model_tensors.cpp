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
using Inside = std::vector<const NamedTensor*>;  // parameters in one store
using WriteInStore = std::function<void(parallel::ParameterStore&, const Inside&)>;

void write_whole(parallel::ParameterStore& store, const Inside& inside, const Write& write) {
  store.write_whole([&] {
    for (const NamedTensor* const parameter : inside) write(*parameter);
  });
}

void write_by_store(const std::vector<parallel::ParameterStore*>& stores, const std::vector<NamedTensor>& parameters,
                    const WriteInStore& write_in_store, const Write& write) {
  std::set<const void*> stored;
  for (parallel::ParameterStore* const store : stores) {
    std::set<const void*> here;
    for (std::size_t i = 0; i < store->size(); ++i) here.insert(store->parameter(i).tensor.unsafeGetTensorImpl());
    Inside inside;
    for (const NamedTensor& parameter : parameters) {
      if (here.contains(parameter.tensor.unsafeGetTensorImpl())) inside.push_back(&parameter);
    }
    write_in_store(*store, inside);
    stored.merge(here);
  }
  for (const NamedTensor& parameter : parameters) {
    if (!stored.contains(parameter.tensor.unsafeGetTensorImpl())) write(parameter);
  }
}

}  // namespace

void write_parameters(const std::vector<parallel::ParameterStore*>& stores, const std::vector<NamedTensor>& parameters,
                      const Write& write) {
  const auto write_in_store = [&write](parallel::ParameterStore& store, const Inside& inside) {
    write_whole(store, inside, write);
  };
  write_by_store(stores, parameters, write_in_store, write);
}

void write_divided_parameters(const std::vector<parallel::ParameterStore*>& stores,
                              const std::vector<NamedTensor>& parameters, const Write& write) {
  const auto write_in_store = [&write](parallel::ParameterStore& store, const Inside& inside) {
    if (store.shards() != nullptr) return write_whole(store, inside, write);
    const auto part = static_cast<std::size_t>(store.node_ranks().rank());
    store.write([&] {
      std::vector<std::int64_t> loads(static_cast<std::size_t>(store.node_ranks().size()));
      std::map<const void*, std::size_t> writers;  // the same on every rank
      for (const NamedTensor* const parameter : inside) {
        const auto least = static_cast<std::size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
        const auto [writer, is_new] = writers.emplace(parameter->tensor.unsafeGetTensorImpl(), least);
        if (is_new) loads[least] += parameter->tensor.numel();
        if (writer->second == part) write(*parameter);
      }
    });
  };
  write_by_store(stores, parameters, write_in_store, write);
}

}  // namespace lockstep::engine
