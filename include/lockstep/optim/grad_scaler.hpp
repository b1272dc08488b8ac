// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::optim {

struct GradScalerOptions {
  double init_scale = 65536;    ///< > 0
  double growth_factor = 2;     ///< > 1: factor on the scale after growth_interval finite steps
  double backoff_factor = 0.5;  ///< > 0 and < 1: factor on the scale after a step that is not finite
  std::int64_t growth_interval = 2000;
  bool is_dynamic = true;  ///< false = constant scale; steps that are not finite are still skipped

  /// Reads "dynamic", or a number, which is the constant scale.
  /// @throws ConfigError  the text is invalid; the message states `origin`
  static GradScalerOptions parse(const std::string& loss_scale, const std::string& origin);
};

/// The loss scale: a factor on the loss before backward, so that gradients in float16 do not underflow. The update
/// divides the gradients by it. A step with gradients that are not finite is skipped, and a dynamic scale is reduced.
/// The scale is equal on every rank and has the range and precision of float32.
///
/// Source: torch.amp.GradScaler. As there, the scale does not grow beyond float32.
class GradScaler {
 public:
  /// The state for checkpoints.
  struct State {
    double scale = 0;
    std::int64_t growth_tracker = 0;    ///< consecutive finite steps since the last change of the scale
    std::int64_t skipped_steps = 0;     ///< skipped steps since the start of the run
    std::int64_t skipped_in_a_row = 0;  ///< consecutive skipped steps
  };

  /// @throws ConfigError  an option out of range
  explicit GradScaler(const GradScalerOptions& options);

  double scale() const noexcept { return state_.scale; }
  /// Updates the scale after a step.
  void update(bool are_finite) noexcept;

  const GradScalerOptions& options() const noexcept { return options_; }
  const State& state() const noexcept { return state_; }
  /// A constant scale keeps its configured value.
  /// @throws std::invalid_argument  the scale is not positive and finite, or a count is negative
  void load_state(const State& state);

 private:
  GradScalerOptions options_;
  State state_;
};

}  // namespace lockstep::optim
