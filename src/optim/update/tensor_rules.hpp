// SPDX-License-Identifier: BSD-3-Clause
// Functions that updates of tensors share.
#pragma once

#include <lockstep/optim/tensor_update.hpp>

#include <functional>

#include "optim/update/live_numbers.hpp"

namespace lockstep::optim {

/// Updates by a rule that is no ClosureRule: by its kernel of LibTorch, if it has one, else by its template.
void update_tensors(const Rule& rule, const TensorUpdate& update);

TensorList concatenated(TensorList first, const TensorList& second);

/// The update of some of the parameters.
TensorUpdate selected(const TensorUpdate& update, const std::vector<std::size_t>& members);
/// The update of some parameters after the other, so that stacks of their tensors need a bounded amount of memory.
std::vector<TensorUpdate> parts_for_stacks(const TensorUpdate& update);
/// The numbers of tensors of one shape, without empty ones: as many as one stack may hold, or one where the tensors are
/// the host's, which has no launches to save.
std::vector<std::vector<std::size_t>> alike(const TensorList& tensors);
/// [B, ...] Tensors of one shape: several in new memory, one as it lies in its own.
at::Tensor stacked(const TensorList& list);

/// Whether this is the first update, which can differ from later ones in its operations.
bool is_first(const TensorUpdate& update);

/// Runs an update in place: of parameters and states or, where it may be void, of copies that then replace them.
void change_unless_void(const TensorUpdate& update, const std::function<void(const TensorUpdate&)>& body);

/// Puts the values of a list instead of those of another one of its type, unless the update is void. One launch, which
/// leaves `values` without meaning.
void assign(const TensorUpdate& update, const TensorList& tensors, const TensorList& values);

/// Gradient descent along `directions` with the options lr, momentum, dampening and nesterov, 0 where there are none,
/// and the first state, in one launch, unless the update is void.
/// @param weight_decay  multiplies the parameters, which are then added to the directions
/// @param maximize      the directions are followed upwards
void descend(const TensorUpdate& update, const TensorList& directions, double weight_decay, bool maximize);

/// The gradients for the rule: negated to maximize.
TensorList downhill(const TensorUpdate& update);

/// The 2-norm of each tensor: [] float64. One launch.
TensorList norms_of(const TensorList& list);

}  // namespace lockstep::optim
