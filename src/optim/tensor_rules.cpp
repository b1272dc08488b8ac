// SPDX-License-Identifier: BSD-3-Clause
#include "optim/tensor_rules.hpp"

#include <torch/types.h>

namespace lockstep::optim {

void assign(const TensorUpdate& update, const at::Tensor& tensor, const at::Tensor& values) {
  tensor.copy_(update.is_void.defined() ? at::where(update.is_void > 0, tensor, values) : values);
}

void move(const TensorUpdate& update, const at::Tensor& parameter, double decay_factor, const at::Tensor& step) {
  if (update.is_void.defined()) return assign(update, parameter, parameter.mul(decay_factor).sub_(step));
  if (decay_factor != 1) parameter.mul_(decay_factor);
  parameter.sub_(step);
}

at::Tensor downhill(const TensorUpdate& update, std::size_t i) {
  return update.options->at("maximize") != 0 ? update.gradients[i].neg() : update.gradients[i];
}

}  // namespace lockstep::optim
