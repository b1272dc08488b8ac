// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/functional.hpp>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include "kernels/gelu.hpp"
#include "kernels/kernels.hpp"
#include "models/layers/linear_kernels.hpp"
#include "models/layers/recorded.hpp"
#include "models/layers/sequence.hpp"

namespace lockstep::models {

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr std::int64_t kGeluGrain = 32768;  // elements: below them a second thread costs more than it saves

/// GELU of a linear layer, whose derivative was computed with it.
class LinearGeluBackward : public torch::autograd::Node {
 public:
  /// @param values  output of the layer
  LinearGeluBackward(const at::Tensor& values, const at::Tensor& input, const Linear& layer)
      : Node(torch::autograd::collect_next_edges(values)),
        input_(input, /*is_output=*/false),
        weight_(layer.weight, /*is_output=*/false),
        bias_(layer.bias, /*is_output=*/false) {}

  void keep(const at::Tensor& derivative) { derivative_ = derivative; }

  std::string name() const override { return "LinearGeluBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(1);
    if (!at::GradMode::is_enabled()) return {gradients[0] * derivative_};
    // The derivative of create_graph depends on what the layer read.
    const at::Tensor values = linear(input_.unpack(), weight_.unpack(), bias_.unpack());
    return {at::gelu_backward(gradients[0], values)};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
    weight_.reset_data();
    bias_.reset_data();
    derivative_.reset();
  }

 private:
  SavedVariable input_;
  SavedVariable weight_;
  SavedVariable bias_;
  at::Tensor derivative_;  // detached from the autograd graph
};

/// Writes the derivatives in place of the values, as a step of training does.
/// @return  gelu of the values
at::Tensor gelu_and_derivatives(const at::Tensor& values) {
  at::Tensor output = at::empty_like(values);
  const KernelRecord record("lockstep::gelu");
  auto* const at_values = values.mutable_data_ptr<float>();
  auto* const at_output = output.mutable_data_ptr<float>();
  at::parallel_for(0, values.numel(), kGeluGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels::gelu_with_derivative(end - begin, at_values + begin, at_output + begin);
  });
  return output;
}

}  // namespace

at::Tensor linear_gelu(Linear& layer, const at::Tensor& input) {
  if (!layer.is_training() && !is_tapped()) {
    const at::Tensor output = linear_gelu_output(input, layer.weight, layer.bias);
    if (output.defined()) return output;
  }
  const at::Tensor values = run(layer, input);
  // Neither a tap nor a pass that is recomputed later changes the bits of training.
  const bool is_step = layer.is_training() && values.is_cpu() && values.scalar_type() == at::kFloat &&
                       values.is_contiguous() && !at::autocast::is_autocast_enabled(at::kCPU) &&
                       kernels::is_used(kernels::Kernel::gelu_step);
  if (!is_step) return models::gelu(values);
  const at::Tensor derivatives = is_tapped() ? values.detach().clone() : values.detach();
  if (!torch::autograd::compute_requires_grad(values)) return gelu_and_derivatives(derivatives);
  const auto node = backward_node<LinearGeluBackward>(values, input, layer);
  node->keep(derivatives);
  return output_of(node, [&] { return gelu_and_derivatives(derivatives); });
}

}  // namespace lockstep::models
