// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_view.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

struct BatchSettings {
  Cited<std::int64_t> global_batch_size = {48};  ///< samples of one step, over all ranks; >= 1
  Cited<std::int64_t> micro_batch = {0};  ///< maximum number of samples per forward pass on a rank; 0 = unlimited
  Cited<std::int64_t> lanes = {0};        ///< 0 = off

  /// Keys global_batch_size, micro_batch and lanes of section `train`.
  static KeySpecs keys();
  static BatchSettings from(const Section& train);
  bool operator==(const BatchSettings&) const = default;
};

/// The layout of the part of a global batch on one rank. Not collective.
/// @param common_passes  the setting that requires equal numbers of forward passes on all ranks; empty = none
/// @throws ConfigError   there is not one sample, or one lane, for each rank; lanes have no equal sizes, or have more
///                       than settings.micro_batch samples; numbers of forward passes cannot be equal
BatchLayout layout_of(const BatchSettings& settings, int rank, int world_size, const std::string& common_passes = "");

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

KeySpec time_limit_key();
/// Key `train.time_limit`: seconds from the start of a run to its end; none = not set.
/// @throws ConfigError  it is no duration
std::optional<double> time_limit_of(const Section& train);

}  // namespace lockstep::engine
