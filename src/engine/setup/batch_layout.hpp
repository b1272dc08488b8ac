// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/run_data.hpp>

#include <cstdint>
#include <string>

#include "core/cited.hpp"

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

/// The layout of the part of a global batch on one rank. Without lanes, all ranks have the same number of forward
/// passes of at most settings.micro_batch samples, unless a forward pass has one sample: a rank with fewer samples then
/// has fewer forward passes. Not collective.
/// @throws ConfigError  there is not one sample, or one lane, for each rank; lanes have no equal sizes, or have more
///                      than settings.micro_batch samples
BatchLayout layout_of(const BatchSettings& settings, int rank, int world_size);

/// For forward or backward passes in which ranks communicate. Not collective.
/// @param what  the setting that requires equal numbers of forward passes on all ranks
/// @throws ConfigError  their numbers differ
void require_equal_forwards(const BatchSettings& settings, int world_size, const std::string& what);

}  // namespace lockstep::engine
