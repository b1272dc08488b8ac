// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <string>
#include <vector>

namespace lockstep::optim {

struct Clip {
  double max_norm = 0;       ///< > 0: scale gradients down to this norm; 0: off
  double norm_type = 2;      ///< the p of the norm; infinity for the largest magnitude
  double max_value = 0;      ///< > 0: clamp every element to [-max_value, max_value]; 0: off
  bool is_by_group = false;  ///< the norm is that of each parameter group by itself, not of all gradients

  /// From "norm:1.0", "norm:1.0:p=1", "norm:1.0:p=inf", "value:0.5" or "" (off).
  /// @throws ConfigError  citing `origin`
  static Clip parse(const std::string& text, const std::string& origin);
};

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
/// What clipping does to gradients whose norm is `norm`.
/// Source of the factor max_norm / (norm + 1e-6), applied only where below 1: torch.nn.utils.clip_grad_norm_.
GradientChange change_by(const Clip& clip, double norm);

}  // namespace lockstep::optim
