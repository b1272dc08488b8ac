// SPDX-License-Identifier: BSD-3-Clause
// Functions that updates of tensors share.
#pragma once

#include <lockstep/optim/tensor_update.hpp>

#include <functional>

#include "optim/update/live_numbers.hpp"

namespace lockstep::optim {

/// Updates by a rule that is no ClosureRule: by its kernel of LibTorch, if it has one, else by its template.
void update_tensors(const Rule& rule, const TensorUpdate& update);
/// Updates by the template of an element rule.
void update_by_rows(const Rule& rule, const TensorUpdate& update);

/// The update of some of the parameters.
TensorUpdate selected(const TensorUpdate& update, const std::vector<std::size_t>& members);

/// Whether this is the first update, which can differ from later ones in its operations.
bool is_first(const TensorUpdate& update);

/// Runs an update in place: of parameters and states or, where it may be void, of copies that then replace them.
void change_unless_void(const TensorUpdate& update, const std::function<void(const TensorUpdate&)>& body);

/// Puts `values` instead of those of `tensor`, unless the update is void.
void assign(const TensorUpdate& update, const at::Tensor& tensor, const at::Tensor& values);

/// The same for lists of one type, in one launch. Leaves `values` without meaning.
void assign(const TensorUpdate& update, const TensorList& tensors, const TensorList& values);

/// Gradient descent along `directions` with the options lr, momentum, dampening and nesterov and the first state, in
/// one launch, unless the update is void.
/// @param weight_decay  multiplies the parameters, which are then added to the directions
/// @param maximize      the directions are followed upwards
void descend(const TensorUpdate& update, const TensorList& directions, double weight_decay, bool maximize);

/// The values of a list, negated to maximize.
TensorList downhill(const TensorUpdate& update);

/// The 2-norm of each tensor: [] float64. One launch.
TensorList norms_of(const TensorList& list);

/// parameter := decay_factor * parameter - step, unless the update is void.
void move(const TensorUpdate& update, const at::Tensor& parameter, const Number& decay_factor, const at::Tensor& step);

/// The gradient for the rule: negated to maximize.
at::Tensor downhill(const TensorUpdate& update, std::size_t i);

}  // namespace lockstep::optim
