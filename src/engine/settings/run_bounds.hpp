// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>

namespace lockstep::engine {

/// The limits of a run.
struct RunBounds {
  std::int64_t max_steps = 0;   ///< 0 = no such bound
  std::int64_t max_epochs = 5;  ///< 0 = no such bound

  /// Keys max_steps and max_epochs of section `train`.
  static KeySpecs keys();
  /// @throws ConfigError  neither is given
  static RunBounds from(const Section& train);

  /// The number of steps of the whole run, for this progress.
  std::int64_t total_steps(const Progress& progress) const;

  bool operator==(const RunBounds&) const = default;
};

}  // namespace lockstep::engine
