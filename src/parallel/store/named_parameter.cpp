// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/named_parameter.hpp"

#include <lockstep/core/error.hpp>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <set>

#include "batch/libtorch_versions.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// The weights whose gradients autograd gives as sparse tensors.
std::vector<at::Tensor> sparse_weights(const torch::nn::Module& module) {
  std::vector<at::Tensor> weights;
  for (const auto& child : module.modules()) {
    if (const auto* embedding = child->as<torch::nn::EmbeddingImpl>(); embedding && embedding->options.sparse()) {
      weights.push_back(embedding->weight);
    }
    if (const auto* bag = child->as<torch::nn::EmbeddingBagImpl>(); bag && bag->options.sparse()) {
      weights.push_back(bag->weight);
    }
  }
  return weights;
}

bool contains(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
}

void require_trainable(const NamedParameter& parameter) {
  if (parameter.tensor.is_meta()) throw ConfigError("ddp: parameter '" + parameter.name + "' is not initialized");
  if (!at::isFloatingType(parameter.tensor.scalar_type())) {
    throw ConfigError("ddp: parameter '" + parameter.name + "' is " +
                      std::string(name_of(dtype_of(parameter.tensor, parameter.name))) +
                      "; only floating-point parameters can be trained");
  }
  if (!is_flat(parameter.tensor)) {
    throw ConfigError("ddp: parameter '" + parameter.name + "' is not dense in memory");
  }
}

/// All claimed parameters.
std::set<const c10::TensorImpl*>& claimed() {
  static std::set<const c10::TensorImpl*> tensors;
  return tensors;
}

}  // namespace

void require_unwrapped(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& parameter : parameters) {
    if (!claimed().contains(parameter.tensor.unsafeGetTensorImpl())) continue;
    throw ConfigError("ddp: parameter '" + parameter.name +
                      "' belongs to another wrapper; destroy it before wrapping the model again");
  }
}

std::shared_ptr<void> claim(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& parameter : parameters) claimed().insert(parameter.tensor.unsafeGetTensorImpl());
  return {nullptr, [parameters](void*) {
            for (const NamedParameter& each : parameters) claimed().erase(each.tensor.unsafeGetTensorImpl());
          }};
}

std::vector<NamedParameter> listed_parameters(const torch::nn::Module& module,
                                              const std::vector<std::string>& ignored) {
  const std::vector<at::Tensor> sparse = sparse_weights(module);
  std::vector<NamedParameter> trained;
  std::vector<at::Tensor> seen;
  for (const auto& item : module.named_parameters()) {
    if (std::find(ignored.begin(), ignored.end(), item.key()) != ignored.end()) continue;
    if (!item.value().requires_grad() || contains(seen, item.value())) continue;
    seen.push_back(item.value());
    trained.push_back({.name = item.key(), .tensor = item.value(), .is_sparse = contains(sparse, item.value())});
  }
  return trained;
}

std::vector<NamedParameter> trained_parameters(const torch::nn::Module& module,
                                               const std::vector<std::string>& ignored) {
  std::vector<NamedParameter> trained = listed_parameters(module, ignored);
  for (const NamedParameter& parameter : trained) {
    require_trainable(parameter);
    if (parameter.tensor.device().type() == trained.front().tensor.device().type()) continue;
    throw ConfigError("ddp: parameters are on different kinds of devices ('" + trained.front().name + "' and '" +
                      parameter.name + "'); move the model to one device before wrapping it");
  }
  if (trained.empty()) {
    throw ConfigError("ddp: no parameter of the model requires a gradient: there is nothing to train");
  }
  return trained;
}

std::vector<ParameterSpec> specs_of(const std::vector<NamedParameter>& parameters) {
  std::vector<ParameterSpec> specs;
  for (const auto& [name, tensor, is_sparse, part] : parameters) {
    specs.push_back({.name = name,
                     .dtype = dtype_of(gradient_type(tensor), name),
                     .shape = tensor.sizes().vec(),
                     .strides = tensor.strides().vec(),
                     .is_sparse = is_sparse});
  }
  return specs;
}

}  // namespace lockstep::parallel
