// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::optim {

struct GradScalerOptions {
  double init_scale = 65536;    ///< > 0
  double growth_factor = 2;     ///< > 1: of the scale, after growth_interval steps without a fault
  double backoff_factor = 0.5;  ///< in (0, 1): of the scale, after a step with one
  std::int64_t growth_interval = 2000;
  bool is_dynamic = true;  ///< false = the scale stays what it is; faulty steps are skipped all the same

  /// From "dynamic" or a number, the scale that stays.
  /// @throws ConfigError  citing `origin`
  static GradScalerOptions parse(const std::string& loss_scale, const std::string& origin);
};

/// What a loss is multiplied by before its backward, so that gradients in float16 do not vanish; they are divided by it
/// again on their way into the update. A step whose gradients are not finite is skipped, and the scale then lowered:
/// the same on every rank, since all are told the same. The scale has float32's range and precision.
///
/// Source: torch.amp.GradScaler. A growth beyond float32 is left out there, too.
class GradScaler {
 public:
  /// What a run must know to continue.
  struct State {
    double scale = 0;
    std::int64_t growth_tracker = 0;    ///< steps without a fault since the scale last changed
    std::int64_t skipped_steps = 0;     ///< since the run began
    std::int64_t skipped_in_a_row = 0;  ///< up to now
  };

  /// @throws ConfigError  an option out of range
  explicit GradScaler(const GradScalerOptions& options);

  double scale() const noexcept { return state_.scale; }
  /// Tells what the gradients of a step were like.
  void update(bool are_finite) noexcept;

  const GradScalerOptions& options() const noexcept { return options_; }
  const State& state() const noexcept { return state_; }
  /// A static scale stays the configured one.
  /// @throws std::invalid_argument  a scale that is not positive and finite, or a negative count
  void load_state(const State& state);

 private:
  GradScalerOptions options_;
  State state_;
};

}  // namespace lockstep::optim
