// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/run_bounds.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <limits>

namespace lockstep::engine {

KeySpecs RunBounds::keys() {
  return {
      keys::integer("train.max_steps", "0", "Maximum number of steps. 0 = unlimited", 0, kMaxSteps),
      keys::integer("train.max_epochs", "5", "Maximum number of epochs. 0 = unlimited", 0, 1e9),
  };
}

RunBounds RunBounds::from(const Section& train) {
  const RunBounds bounds{.max_steps = train.integer("max_steps"), .max_epochs = train.integer("max_epochs")};
  if (bounds.max_steps != 0 || bounds.max_epochs != 0) return bounds;
  throw ConfigError("train.max_steps and train.max_epochs are both 0; set at least one of them");
}

std::int64_t RunBounds::total_steps(const Progress& progress) const {
  constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  const std::int64_t left_in_epochs = (max_epochs - progress.epoch) * progress.steps_per_epoch - progress.step_in_epoch;
  const std::int64_t by_epochs = max_epochs == 0 ? kEndless : progress.step + std::max<std::int64_t>(0, left_in_epochs);
  return std::min(max_steps == 0 ? kEndless : max_steps, by_epochs);
}

}  // namespace lockstep::engine
