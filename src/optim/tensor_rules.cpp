// SPDX-License-Identifier: BSD-3-Clause
#include "optim/tensor_rules.hpp"

#include <torch/types.h>

namespace lockstep::optim {

void assign(const TensorUpdate& update, const at::Tensor& tensor, const at::Tensor& values) {
  tensor.copy_(update.is_void.defined() ? at::where(update.is_void > 0, tensor, values) : values);
}

void move(const TensorUpdate& update, const at::Tensor& parameter, const Number& decay_factor, const at::Tensor& step) {
  if (update.is_void.defined()) return assign(update, parameter, product(parameter, decay_factor).sub_(step));
  if (decay_factor.is_live() || decay_factor.plain() != 1) multiply({parameter}, decay_factor);
  parameter.sub_(step);
}

at::Tensor downhill(const TensorUpdate& update, std::size_t i) {
  return update.options->at("maximize") != 0 ? update.gradients[i].neg() : update.gradients[i];
}

}  // namespace lockstep::optim
