// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/reducers/accumulator_hooks.hpp"
#include "parallel/reducers/autograd_graph.hpp"

namespace lockstep::parallel {

/// Finds the parameters on which the outputs of a forward do not depend. Not collective.
class UnusedParameters {
 public:
  /// @param parameters  the number of parameters
  explicit UnusedParameters(std::size_t parameters) : is_unused_(parameters) {}

  /// Walks the graph of `outputs`. Warns once if every parameter is used.
  /// @param accumulators  the gradient accumulators, by parameter
  void find(std::span<const at::Tensor> outputs, const std::vector<NodeHandle>& accumulators);
  /// Begins a step: no parameter is known to be unused.
  void clear();

  bool contains(std::size_t parameter) const { return is_unused_[parameter] != 0; }
  /// Whether every call of find so far found the same parameters.
  bool are_constant() const noexcept { return are_constant_; }

 private:
  void warn_if_none();

  AutogradGraph graph_;
  std::vector<char> is_unused_;     // one flag for each parameter
  std::vector<char> first_unused_;  // result of the first call of find
  bool are_constant_ = true;
  bool has_warned_ = false;
};

}  // namespace lockstep::parallel
