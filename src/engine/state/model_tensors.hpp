// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The parameters under all of its names. A tied parameter has several.
std::vector<NamedTensor> parameters_of(const models::Model& model);
std::vector<NamedTensor> buffers_of(const models::Model& model);

/// Calls `write` for each of these parameters: for those in the store where ParameterStore::write_whole allows it, for
/// the others on every rank. Collective.
void write_parameters(parallel::ParameterStore& store, const std::vector<NamedTensor>& parameters,
                      const std::function<void(const NamedTensor&)>& write);

/// The same, but the ranks of a host that share one copy divide the parameters of the store, by their sizes.
void write_divided_parameters(parallel::ParameterStore& store, const std::vector<NamedTensor>& parameters,
                              const std::function<void(const NamedTensor&)>& write);

}  // namespace lockstep::engine
