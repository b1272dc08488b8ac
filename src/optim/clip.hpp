// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optim_wrapper.hpp>

#include <span>
#include <vector>

namespace lockstep::optim {

/// The p-norm of all gradients as one vector, p > 0, before clipping. Not finite when a gradient is not (the largest
/// magnitude is then infinity, even for a NaN). Sums pieces by a fixed tree: the same bits for the same gradients,
/// whoever owns which part. After FlatParameters::finish_gradients. Collective like FlatParameters::sum_over_owners.
/// @param factor  the norm is that of gradients multiplied by this
double gradient_norm(FlatParameters& parameters, double norm_type, double factor = 1);
/// The same for the gradients of each group by itself.
std::vector<double> gradient_norms_by_group(const Optimizer& optimizer, FlatParameters& parameters, double norm_type,
                                            double factor = 1);
/// The norm of a whole that consists of parts with these norms.
double norm_of_parts(std::span<const double> norms, double norm_type);
/// Whether no element of any gradient is infinite or NaN, the same on every rank. After
/// FlatParameters::finish_gradients. Collective like FlatParameters::sum_over_owners.
bool are_gradients_finite(FlatParameters& parameters);
/// The change of gradients with the norm `norm` by clipping. Source of the factor max_norm / (norm + 1e-6), applied
/// only where below 1: torch.nn.utils.clip_grad_norm_.
GradientChange change_by(const Clip& clip, double norm);

}  // namespace lockstep::optim
