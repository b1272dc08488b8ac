// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/output_watch.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace lockstep::parallel {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The values that the context of the function keeps.
struct Listener : torch::CustomClassHolder {
  explicit Listener(std::function<void()> action) : on_backward(std::move(action)) {}
  std::function<void()> on_backward;
};

struct PassThrough : torch::autograd::Function<PassThrough> {
  /// Passed as a TensorList, tensors are inputs of the function; a vector would be a constant.
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const std::function<void()>* on_backward) {
    context->set_materialize_grads(false);
    context->saved_data["listener"] = c10::IValue::make_capsule(c10::make_intrusive<Listener>(*on_backward));
    variable_list outputs;
    for (const at::Tensor& input : inputs) outputs.push_back(input.clone());
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    c10::static_intrusive_pointer_cast<Listener>(context->saved_data["listener"].toCapsule())->on_backward();
    gradients.emplace_back();  // undefined gradient for the argument on_backward
    return gradients;
  }
};

}  // namespace

std::vector<at::Tensor> pass_through(std::vector<at::Tensor> outputs, std::function<void()> on_backward) {
  variable_list live;
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) live.push_back(output);
  }
  if (live.empty()) return outputs;
  const variable_list passed = PassThrough::apply(at::TensorList(live), &on_backward);
  std::size_t next = 0;
  for (at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) output = passed[next++];
  }
  return outputs;
}

}  // namespace lockstep::parallel
