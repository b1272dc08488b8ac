// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::models {

/// Memory that a reducer chose for a parameter's gradient. Layers whose backward knows it write there, so that nobody
/// has to copy the gradient afterwards.
///
/// The parameter's `.grad` says what the memory holds: undefined, nothing yet, so the first writer overwrites; `.grad`
/// is the view, a gradient, so every writer adds, be it a layer or autograd itself; anything else, not ours, so
/// autograd accumulates as usual. Tied parameters, several backward passes and zeroing by any way follow from that.
struct GradientSink : c10::BackendMeta {
  explicit GradientSink(at::Tensor memory) : view(std::move(memory)) {}
  /// Detached and other shallow copies of a parameter have no sink.
  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override { return {}; }

  at::Tensor view;          ///< laid out like the parameter; holds anything until `.grad` is the view
  bool is_written = false;  ///< a layer has written; the owner of the sink reads and resets it
};

/// Gives a parameter a sink, instead of one it had. Its gradient is left as it is.
/// @param view  what `.grad` becomes when a layer writes; kept alive until detach_sink
/// @throws std::logic_error  not a trained leaf, or the view does not fit it
void attach_sink(const at::Tensor& parameter, at::Tensor view);

/// Takes the sink away, if there is one. A gradient that lies in it stays valid.
void detach_sink(const at::Tensor& parameter);

/// The sink of this very tensor, or null. O(1).
GradientSink* sink_of(const at::Tensor& parameter);

/// A node for the backward of a layer: writes the gradient of `parameter` into its sink if that is what autograd would
/// come to now, and makes `.grad` the view.
///
/// Not so when there is no sink, autograd records (create_graph), another process requested certain gradients only
/// (autograd::grad, backward with inputs), hooks want to see the gradient, or its dtype is not the sink's.
/// @param dtype      of the gradient
/// @param overwrite  void(const at::Tensor& view): stores the gradient
/// @param add        void(const at::Tensor& view): adds it
/// @return           true = written, and the backward has to return an undefined gradient; false = nothing happened
template <class Overwrite, class Add>
bool write_to_sink(const at::Tensor& parameter, at::ScalarType dtype, const Overwrite& overwrite, const Add& add);

/// The gradient of a bias, for the backward of a layer.
/// @param rows  [N, C]: those of the output
/// @return      [C]; undefined if the sink of `bias` has it
at::Tensor bias_gradient(const at::Tensor& bias, const at::Tensor& rows);

namespace detail {

/// The sink to be written now, or null.
GradientSink* writable_sink(const at::Tensor& parameter, at::ScalarType dtype);

}  // namespace detail

template <class Overwrite, class Add>
bool write_to_sink(const at::Tensor& parameter, at::ScalarType dtype, const Overwrite& overwrite, const Add& add) {
  GradientSink* const sink = detail::writable_sink(parameter, dtype);
  if (sink == nullptr) return false;
  if (parameter.grad().defined()) {
    add(sink->view);
  } else {
    overwrite(sink->view);
    parameter.mutable_grad() = sink->view;
  }
  sink->is_written = true;
  return true;
}

}  // namespace lockstep::models
