// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace lockstep::engine {

/// The checkpoints that have been committed in this run, as far as this rank knows: complete on rank 0.
struct Saves {
  std::int64_t last_step = -1;  ///< -1 = nothing yet
  double longest_seconds = 0;   ///< longest time from a snapshot to its commit
  /// Waits for the checkpoint that is being written; empty = the run writes none. Collective.
  std::function<void()> finish = {};
  /// Saves a checkpoint of the step at hand and waits for it; empty = the run writes none. Collective, between steps.
  /// @throws CheckpointError  it failed; on every rank
  std::function<void()> save = {};

  /// A checkpoint is committed.
  /// @param seconds  from its snapshot to its commit
  void note(std::int64_t step, double seconds) {
    last_step = step;
    longest_seconds = std::max(longest_seconds, seconds);
  }
};

}  // namespace lockstep::engine
