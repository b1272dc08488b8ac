// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include "core/text/every.hpp"

namespace lockstep::engine {

inline RunPosition position_of(const Progress& progress) {
  return {.step = progress.step,
          .total_steps = progress.total_steps,
          .epoch = progress.epoch,
          .step_in_epoch = progress.step_in_epoch};
}

/// The position after the step that comes next.
inline RunPosition next_position(Progress progress) {
  progress.advance(0);
  return position_of(progress);
}

}  // namespace lockstep::engine
