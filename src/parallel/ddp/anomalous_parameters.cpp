// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/anomalous_parameters.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "parallel/reducers/autograd_graph.hpp"

namespace lockstep::parallel {

std::vector<std::string> anomalous_parameters(const std::vector<at::Tensor>& losses,
                                              const std::vector<NamedParameter>& parameters) {
  AutogradGraph graph;
  graph.collect(losses);
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    // Null when no living graph has the parameter.
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter.tensor);
    if (!graph.contains(accumulator.get())) names.push_back(parameter.name);
  }
  return names;
}

}  // namespace lockstep::parallel
