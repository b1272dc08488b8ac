// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor_fwd.hpp>
#include <lockstep/optim/grad_scaler.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::optim {

/// How gradients are clipped before an update.
struct Clip {
  double max_norm = 0;       ///< > 0 = scale gradients down to this norm; 0 = off
  double norm_type = 2;      ///< the p of the norm; infinity for the largest magnitude
  double max_value = 0;      ///< > 0 = clamp every element to [-max_value, max_value]; 0 = off
  bool is_by_group = false;  ///< the norm is that of each parameter group by itself, not of all gradients

  /// From "norm:1.0", "norm:1.0:p=1", "norm:1.0:p=inf", "value:0.5" or "" (off).
  /// @throws ConfigError  citing `origin`
  static Clip parse(const std::string& text, const std::string& origin);
};

/// What one call of update_params did.
struct UpdateReport {
  bool updated = false;             ///< false = this micro_batch was only accumulated, or something was not finite
  std::optional<double> grad_norm;  ///< before clipping and without the loss scale, when a norm was computed
  bool is_finite = true;            ///< false = the norm, or under a scaler a gradient, was not finite; gradients were
                                    ///< dropped, nothing was updated or counted
  std::int64_t evaluations = 1;     ///< of the loss, in the whole step
};

/// The only way a step updates parameters: accumulates, clips, updates, and drops the gradients.
///
/// With a scaler it is what others call an AMP wrapper: losses are multiplied by the loss scale, gradients divided by
/// it in the pass that updates, and a step whose gradients are not finite is skipped. Without one, gradients are looked
/// at only where they are clipped by their norm, or with skips_nonfinite.
class OptimWrapper {
 public:
  struct WrapperOptions {
    std::int64_t accumulation_steps = 1;  ///< micro_batches per step; >= 1
    Clip clip = {};
    std::optional<GradScalerOptions> scaler = {};
    bool skips_nonfinite = false;  ///< without a scaler, too, gradients are looked at before they are taken
  };
  /// @throws ConfigError  an option out of range, or clipping, a scaler or skips_nonfinite for a rule that uses a
  ///                      closure: it compares losses with their own gradients
  OptimWrapper(Optimizer optimizer, FlatParameters& parameters, const WrapperOptions& options);

  /// Where a training stands whose micro_batches need not divide into steps: its last step then takes what is left.
  /// Warns when `done` is inside a step, whose first gradients are lost.
  /// @param done   micro_batches before the coming one
  /// @param total  micro_batches of the whole training; 0 = unknown
  void begin_at(std::int64_t done, std::int64_t total);

  /// Whether the coming micro_batch completes a step: its backward must synchronize, all others must not.
  bool completes_step() const noexcept;
  /// Micro_batches of the step that the coming one belongs to.
  /// @throws std::logic_error  it is beyond the whole training
  std::int64_t micro_batches_in_step() const;
  std::int64_t micro_batches_done() const noexcept { return done_; }
  std::int64_t accumulation_steps() const noexcept { return options_.accumulation_steps; }

  /// Runs the backward pass of `loss * weight` and, if the step is complete, clips, updates and drops the gradients.
  ///
  /// @param loss    [] scalar, the micro_batch's mean loss
  /// @param weight  the micro_batch's share of the step; default 1 / micro_batches_in_step
  /// @param before_update  called between backward and update of the micro_batch that completes a step; empty = nothing
  /// Collective when it completes a step.
  UpdateReport update_params(const Tensor& loss, std::optional<double> weight = std::nullopt,
                             const std::function<void()>& before_update = {});

  /// Whether a step evaluates the loss several times. Then update_with_closure replaces update_params.
  bool uses_closure() const noexcept { return optimizer_.rule().uses_closure(); }
  /// One step of such a rule.
  /// @param closure  goes through the micro_batches of the step as if each were new: forward and update_params, which
  ///                 then updates nothing. Returns their mean loss: see Optimizer::step_with_closure
  /// Collective.
  UpdateReport update_with_closure(const std::function<double()>& closure);

  /// Forgets micro_batches accumulated so far, after an error.
  void reset() noexcept {
    done_ = step_begin_;
    is_in_closure_ = false;
  }

  /// One option of every group, in their order: "base_lr", which schedules multiply, or by its name. "momentum" is
  /// beta1 for rules with betas, and 0 for those with neither.
  std::vector<double> values(std::string_view option) const;

  Optimizer& optimizer() noexcept { return optimizer_; }
  const Optimizer& optimizer() const noexcept { return optimizer_; }
  FlatParameters& parameters() noexcept { return *parameters_; }
  GradScaler* scaler() noexcept { return scaler_ ? &*scaler_ : nullptr; }  ///< null = losses are not scaled
  const GradScaler* scaler() const noexcept { return scaler_ ? &*scaler_ : nullptr; }

 private:
  UpdateReport clip_and_step();
  UpdateReport clip_and_step_tensors();

  Optimizer optimizer_;
  FlatParameters* parameters_;
  WrapperOptions options_;
  std::optional<GradScaler> scaler_;
  std::int64_t done_ = 0;        // micro_batches
  std::int64_t step_begin_ = 0;  // `done_` when the step at hand began
  std::int64_t total_ = 0;       // of the whole training; 0 = unknown
  bool is_in_closure_ = false;
};

}  // namespace lockstep::optim
