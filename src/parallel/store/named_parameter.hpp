// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/store/bucket_plan.hpp"

namespace torch::nn {
class Module;
}

namespace lockstep::parallel {

/// A parameter of the model: its tensor and its full name.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  bool is_sparse = false;  ///< its gradient is a sparse tensor
  std::size_t part = 0;    ///< see DdpOptions::parts
};

/// The parameters of a module that require a gradient, in registration order, each once even if it is registered under
/// several names: the first counts. Gradients of an nn::Embedding with `sparse` are sparse.
/// @param ignored  full names to leave out
/// @throws ConfigError  there is none, or one has gaps, has no values (device meta) or is not of a floating-point type
std::vector<NamedParameter> trained_parameters(const torch::nn::Module& module,
                                               const std::vector<std::string>& ignored = {});

/// The same without the checks, for a model that may have no memory. Can be empty.
std::vector<NamedParameter> listed_parameters(const torch::nn::Module& module,
                                              const std::vector<std::string>& ignored = {});

/// A parameter serves one wrapper: with two, one would update memory that the model does not use any more, and
/// gradients would be divided twice.
/// @throws ConfigError  one is claimed
void require_unwrapped(const std::vector<NamedParameter>& parameters);
/// Marks parameters as wrapped.
/// @return  releases them when it is destroyed
std::shared_ptr<void> claim(const std::vector<NamedParameter>& parameters);

/// The facts that bucket assignment needs to know.
std::vector<ParameterSpec> specs_of(const std::vector<NamedParameter>& parameters);

}  // namespace lockstep::parallel
