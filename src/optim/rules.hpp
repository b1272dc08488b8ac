// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optimizer.hpp>

namespace lockstep::optim {

/// Stochastic gradient descent. Source: torch.optim.SGD, single-tensor form.
Rule sgd_rule();
/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2). Source of the order of
/// operations: torch.optim.AdamW, single-tensor form.
Rule adamw_rule();

}  // namespace lockstep::optim
