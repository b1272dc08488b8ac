// SPDX-License-Identifier: BSD-3-Clause
#include "optim/update/tensor_rules.hpp"

#include <torch/types.h>

#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

/// The tensors that an update changes: the parameters, then each state that they have.
TensorList tensors_of(const TensorUpdate& update) {
  TensorList tensors = update.parameters;
  for (const TensorList& slot : update.states) {
    for (const at::Tensor& state : slot) {
      if (state.defined()) tensors.push_back(state);
    }
  }
  return tensors;
}

template <class T>
std::vector<T> selected_from(const std::vector<T>& all, const std::vector<std::size_t>& members) {
  std::vector<T> some;
  for (const std::size_t i : members) some.push_back(all[i]);
  return some;
}

}  // namespace

TensorUpdate selected(const TensorUpdate& update, const std::vector<std::size_t>& members) {
  TensorUpdate some = update;
  some.parameters = selected_from(update.parameters, members);
  some.gradients = selected_from(update.gradients, members);
  for (std::size_t slot = 0; slot < update.states.size(); ++slot) {
    some.states[slot] = selected_from(update.states[slot], members);
  }
  if (!update.dims.empty()) some.dims = selected_from(update.dims, members);
  return some;
}

bool is_first(const TensorUpdate& update) {
  if (update.live != nullptr) {
    update.live->fixed([](const Options&, std::int64_t step) { return step == 1 ? 1 : 0; });
  }
  return update.step == 1;
}

void change_unless_void(const TensorUpdate& update, const std::function<void(const TensorUpdate&)>& body) {
  if (!update.is_void.defined()) return body(update);
  const TensorList tensors = tensors_of(update);
  const TensorStack copies = TensorStack::of(tensors);
  TensorUpdate of_copies = update;
  auto next = copies.parts().begin();
  for (at::Tensor& parameter : of_copies.parameters) parameter = *next++;
  for (TensorList& slot : of_copies.states) {
    for (at::Tensor& state : slot) {
      if (state.defined()) state = *next++;
    }
  }
  body(of_copies);
  assign(update, tensors, copies.parts());
}

void assign(const TensorUpdate& update, const at::Tensor& tensor, const at::Tensor& values) {
  tensor.copy_(update.is_void.defined() ? at::where(update.is_void > 0, tensor, values) : values);
}

void assign(const TensorUpdate& update, const TensorList& tensors, const TensorList& values) {
  if (!update.is_void.defined()) return at::_foreach_copy_(tensors, values);
  // The kernel of SGD is the one that reads on the device whether it may write. Its first step fills the momentum with
  // the gradients; the values are the gradients and, at a learning rate of 0, the parameters.
  at::_fused_sgd_(values, values, tensors, /*weight_decay=*/0, /*momentum=*/1, /*lr=*/0.0, /*dampening=*/0,
                  /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/true, {}, update.is_void);
}

TensorList downhill(const TensorUpdate& update) {
  return update.options->at("maximize") != 0 ? at::_foreach_neg(update.gradients) : update.gradients;
}

TensorList norms_of(const TensorList& list) { return at::_foreach_norm(list, 2, at::kDouble); }

void move(const TensorUpdate& update, const at::Tensor& parameter, const Number& decay_factor, const at::Tensor& step) {
  if (update.is_void.defined()) return assign(update, parameter, product(parameter, decay_factor).sub_(step));
  if (decay_factor.is_live() || decay_factor.plain() != 1) multiply({parameter}, decay_factor);
  parameter.sub_(step);
}

at::Tensor downhill(const TensorUpdate& update, std::size_t i) {
  return update.options->at("maximize") != 0 ? update.gradients[i].neg() : update.gradients[i];
}

}  // namespace lockstep::optim
