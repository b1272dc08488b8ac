// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/gradient_sink.hpp"

#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>

namespace lockstep::models {

namespace {

/// Whether this is a plain backward(), which accumulates into the leaves. Outside of any backward there is no task.
bool accumulates_everywhere() {
  const auto* const wanted = torch::autograd::get_current_graph_task_exec_info();
  return wanted == nullptr || wanted->empty();
}

bool has_gradient_hooks(const at::Tensor& parameter) {
  return !torch::autograd::impl::hooks(parameter).empty() ||
         torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr;
}

}  // namespace

void attach_sink(const at::Tensor& parameter, at::Tensor view) {
  if (!parameter.is_leaf() || !parameter.requires_grad()) {
    throw std::logic_error("a gradient sink requires a leaf tensor that requires a gradient");
  }
  if (view.sizes() != parameter.sizes() || view.strides() != parameter.strides() || view.dtype() != parameter.dtype() ||
      view.device() != parameter.device()) {
    throw std::logic_error("a gradient sink must have the shape, strides, dtype and device of its parameter");
  }
  parameter.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<GradientSink>(std::move(view)));
}

void detach_sink(const at::Tensor& parameter) {
  if (sink_of(parameter) != nullptr) parameter.unsafeGetTensorImpl()->set_backend_meta({});
}

GradientSink* sink_of(const at::Tensor& parameter) {
  return dynamic_cast<GradientSink*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
}

at::Tensor bias_gradient(const at::Tensor& bias, const at::Tensor& rows) {
  const bool is_written = write_to_sink(
      bias, rows.scalar_type(), [&](at::Tensor view) { at::sum_out(view, rows, 0); },
      [&](const at::Tensor& view) { view.add_(rows.sum(0)); });
  return is_written ? at::Tensor() : rows.sum(0);
}

GradientSink* detail::writable_sink(const at::Tensor& parameter, at::ScalarType dtype) {
  GradientSink* const sink = sink_of(parameter);
  if (sink == nullptr || !parameter.requires_grad() || at::GradMode::is_enabled() || !accumulates_everywhere()) {
    return nullptr;
  }
  const at::Tensor& view = sink->view;
  // The parameter may have been given other data since: another dtype or shape.
  if (view.scalar_type() != dtype || view.sizes() != parameter.sizes() || view.strides() != parameter.strides()) {
    return nullptr;
  }
  const at::Tensor& gradient = parameter.grad();
  const bool is_other = gradient.defined() && !gradient.is_same(view) &&
                        (gradient.is_sparse() || gradient.const_data_ptr() != view.const_data_ptr());
  return is_other || has_gradient_hooks(parameter) ? nullptr : sink;
}

}  // namespace lockstep::models
