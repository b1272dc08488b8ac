// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep::parallel {

/// Copies of the outputs whose backward passes on what comes, undefined gradients included, so that a part of the graph
/// that the loss ignores still runs. Tensors that need no gradient come back as they are.
/// @param on_backward  called when the backward pass enters the graph through these outputs
std::vector<at::Tensor> pass_through(std::vector<at::Tensor> outputs, std::function<void()> on_backward);

}  // namespace lockstep::parallel
