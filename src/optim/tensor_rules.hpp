// SPDX-License-Identifier: BSD-3-Clause
// What rules for whole parameters share.
#pragma once

#include <lockstep/optim/tensor_update.hpp>

#include "optim/live_numbers.hpp"

namespace lockstep::optim {

/// Puts `values` instead of those of `tensor`, unless the update is void.
void assign(const TensorUpdate& update, const at::Tensor& tensor, const at::Tensor& values);

/// parameter := decay_factor * parameter - step, unless the update is void.
void move(const TensorUpdate& update, const at::Tensor& parameter, const Number& decay_factor, const at::Tensor& step);

/// The gradient for the rule: negated to maximize.
at::Tensor downhill(const TensorUpdate& update, std::size_t i);

}  // namespace lockstep::optim
