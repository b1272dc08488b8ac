// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cmath>
#include <stdexcept>

#include "optim/rules/options.hpp"

namespace lockstep::optim {

namespace {

void require(bool is_right, const std::string& rule) {
  if (!is_right) throw ConfigError("loss scaling: " + rule);
}

/// The value as float32 holds it.
double narrowed(double scale) { return static_cast<double>(static_cast<float>(scale)); }

}  // namespace

GradScalerOptions GradScalerOptions::parse(const std::string& loss_scale, const std::string& origin) {
  if (loss_scale == "dynamic") return {};
  const std::optional<double> scale = positive_number(loss_scale);
  if (!scale) throw ConfigError(origin + ": '" + loss_scale + "' is not a loss scale; use dynamic or a number > 0");
  return {.init_scale = *scale, .is_dynamic = false};
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  state_.scale = narrowed(options.init_scale);
  require(state_.scale > 0 && std::isfinite(state_.scale), "the scale must be a positive float32 number");
  require(options.growth_factor > 1, "growth_factor must be greater than 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor must be between 0 and 1");
  require(options.growth_interval >= 1, "growth_interval must be at least 1");
}

void GradScaler::update(bool are_finite) noexcept {
  if (!are_finite) {
    ++state_.skipped_steps;
    ++state_.skipped_in_a_row;
    state_.growth_tracker = 0;
    const double lowered = narrowed(state_.scale * options_.backoff_factor);
    if (options_.is_dynamic && lowered > 0) state_.scale = lowered;
    return;
  }
  state_.skipped_in_a_row = 0;
  if (!options_.is_dynamic || ++state_.growth_tracker < options_.growth_interval) return;
  state_.growth_tracker = 0;
  const double grown = narrowed(state_.scale * options_.growth_factor);
  if (std::isfinite(grown)) state_.scale = grown;
}

void GradScaler::load_state(const State& state) {
  const bool is_right = state.scale > 0 && std::isfinite(narrowed(state.scale)) && state.growth_tracker >= 0 &&
                        state.skipped_steps >= 0 && state.skipped_in_a_row >= 0;
  if (!is_right) throw std::invalid_argument("not a state of the loss scaler");
  const double scale = options_.is_dynamic ? narrowed(state.scale) : state_.scale;
  state_ = state;
  state_.scale = scale;
}

}  // namespace lockstep::optim
