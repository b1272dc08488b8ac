// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>

namespace lockstep::engine {

/// What ends a run.
struct RunBounds {
  std::int64_t max_steps = 0;   ///< 0: no such bound
  std::int64_t max_epochs = 0;  ///< 0: no such bound

  RunBounds() = default;
  /// @throws ConfigError  neither is given
  explicit RunBounds(const Section& train);

  /// Of the whole run, when it is as far as `at`.
  std::int64_t total_steps(const Progress& at) const;
};

}  // namespace lockstep::engine
