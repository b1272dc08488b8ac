// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/rule.hpp>

namespace lockstep::optim {

// Unless it says otherwise, the source of a rule's order of operations is the class of torch.optim, single-tensor form.

/// Stochastic gradient descent.
Rule sgd_rule();
/// Kingma and Ba, arXiv:1412.6980, algorithm 1; amsgrad: Reddi et al., arXiv:1904.09237.
Rule adam_rule();
/// Loshchilov and Hutter, arXiv:1711.05101, algorithm 2.
Rule adamw_rule();
/// Duchi et al., JMLR 12 (2011), 2121.
Rule adagrad_rule();
/// Hinton's lecture notes; centered: Graves, arXiv:1308.0850.
Rule rmsprop_rule();
/// Zeiler, arXiv:1212.5701.
Rule adadelta_rule();
/// arXiv:1412.6980, algorithm 2.
Rule adamax_rule();
/// Dozat, Incorporating Nesterov momentum into Adam (2016).
Rule nadam_rule();
/// Liu et al., arXiv:1908.03265.
Rule radam_rule();
/// Polyak and Juditsky, SIAM J. Control Optim. 30 (1992), 838.
Rule asgd_rule();
/// Riedmiller and Braun (1993).
Rule rprop_rule();
/// Chen et al., arXiv:2302.06675. Source of the order of operations: timm.
Rule lion_rule();

// Per-tensor rules.

/// You et al., arXiv:1708.03888. Sources of the order of operations: timm, and with joint_norm vissl.
Rule lars_rule();
/// LARS as a change of the gradient before gradient descent. Source of the order of operations: apex.
Rule larc_rule();
/// You et al., arXiv:1904.00962. Source of the order of operations: timm.
Rule lamb_rule();

// Rules for whole parameters.

/// Shazeer and Stern, arXiv:1804.04235.
Rule adafactor_rule();
/// Jordan et al., Muon (2024); adjust_lr_fn=match_rms_adamw: Liu et al., arXiv:2502.16982.
Rule muon_rule();

// Rules that evaluate the loss several times in a step.

/// Nocedal and Wright, Numerical Optimization, algorithms 7.4, 3.5 and 3.6.
Rule lbfgs_rule();

// Updates by LibTorch's fused kernels: one launch for all tensors of an update.

void update_sgd_tensors(const TensorUpdate& update);
void update_adam_tensors(const TensorUpdate& update);
void update_adamw_tensors(const TensorUpdate& update);
void update_adagrad_tensors(const TensorUpdate& update);
/// LAMB by those of Adam and SGD: some launches more.
void update_lamb_tensors(const TensorUpdate& update);

// What these updates share with the loops.

/// @param step  number of the update, from 1
double adagrad_step_size(const Options& options, std::int64_t step);
Needs needs_of_lamb(const Options& options);

}  // namespace lockstep::optim
