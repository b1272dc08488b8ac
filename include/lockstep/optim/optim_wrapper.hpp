// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/tensor_fwd.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::optim {

struct Clip {
  double max_norm = 0;   ///< > 0: scale gradients down to this global norm; 0: off
  double norm_type = 2;  ///< the p of the norm; infinity for the largest magnitude
  double max_value = 0;  ///< > 0: clamp every element to [-max_value, max_value]; 0: off

  /// From "norm:1.0", "value:0.5" or "" (off).
  /// @throws ConfigError  citing `origin`
  static Clip parse(const std::string& text, const std::string& origin);
};

/// The p-norm of all gradients as one vector, p > 0, before clipping. Not finite when a gradient is not (the largest
/// magnitude is then infinity, even for a NaN). Sums pieces by a fixed tree: the same bits for the same gradients,
/// whoever owns which part. After FlatParameters::finish_gradients. Collective like FlatParameters::sum_over_owners.
double gradient_norm(FlatParameters& parameters, double norm_type);
/// What clipping does to gradients whose norm is `norm`.
/// Source of the factor max_norm / (norm + 1e-6), applied only where below 1: torch.nn.utils.clip_grad_norm_.
GradientChange change_by(const Clip& clip, double norm);

/// What one call of update_params did.
struct UpdateReport {
  bool updated = false;             ///< false: this micro_batch was only accumulated, or the norm was not finite
  std::optional<double> grad_norm;  ///< before clipping, when a norm was computed
  bool is_finite = true;            ///< false: the norm was not finite; gradients were dropped, nothing was updated
};

/// The only way a step updates parameters: accumulates, clips, updates, and drops the gradients.
class OptimWrapper {
 public:
  struct WrapperOptions {
    std::int64_t accumulation_steps = 1;  ///< micro_batches per step; >= 1
    Clip clip = {};
  };
  OptimWrapper(Optimizer optimizer, FlatParameters& parameters, WrapperOptions options);

  /// Whether the coming micro_batch completes a step: its backward must synchronise, all others must not.
  bool completes_step() const noexcept { return micro_batch_ + 1 == options_.accumulation_steps; }

  std::int64_t accumulation_steps() const noexcept { return options_.accumulation_steps; }

  /// Runs the backward pass of `loss * weight` and, if the step is complete, clips, updates and drops the gradients.
  ///
  /// @param loss    [] scalar, the micro_batch's mean loss
  /// @param weight  the micro_batch's share of the step; default 1 / accumulation_steps
  /// Collective when it completes a step.
  UpdateReport update_params(const Tensor& loss, std::optional<double> weight = std::nullopt);

  /// Forgets micro_batches accumulated so far, after an error.
  void reset() noexcept { micro_batch_ = 0; }

  Optimizer& optimizer() noexcept { return optimizer_; }
  const Optimizer& optimizer() const noexcept { return optimizer_; }

 private:
  UpdateReport clip_and_step();
  UpdateReport clip_and_step_tensors();

  Optimizer optimizer_;
  FlatParameters* parameters_;
  WrapperOptions options_;
  std::int64_t micro_batch_ = 0;
};

}  // namespace lockstep::optim
