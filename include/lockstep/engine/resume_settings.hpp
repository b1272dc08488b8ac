// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>
#include <lockstep/core/section.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

/// Prefixes of stored names, and what replaces them; the first prefix that matches counts.
using Renames = std::vector<std::pair<std::string, std::string>>;

/// What may differ between a checkpoint and the run that resumes from it. By default nothing.
struct RestoreOptions {
  bool is_partial = false;      ///< take what fits by name, type and shape; the rest keeps its initial values
  bool resets_optim = false;    ///< moments and update counts start again
  bool resets_sched = false;    ///< the schedule starts again at this step
  bool resets_sampler = false;  ///< the samples start again, with epoch 0
  bool resets_rng = false;      ///< LibTorch's generators keep the state they have
  bool resets_average = false;  ///< the average of weights starts again
  Renames renames = {};         ///< of parameters and buffers
};

/// Key `resume` and section `resume`: from which checkpoint a run resumes, and how.
struct ResumeSettings {
  std::string source = "none";      ///< none, auto, must, a step or a path
  std::int64_t max_fallback = 3;    ///< older checkpoints to try when the newest cannot be read
  std::int64_t max_starts = 3;      ///< starts of a requeued job from one step; 0 = unlimited
  bool allow_fresh = false;         ///< start from the beginning when no checkpoint can be read
  bool allow_nonfinite = false;     ///< resume from parameters that contain NaN or infinity
  bool fork = false;                ///< resume in a folder with checkpoints of another run
  std::string schedule = "config";  ///< the schedule that holds when it changed: config or checkpoint
  RestoreOptions restore = {};

  /// Key `resume` first, then those of the section.
  static KeySpecs keys();
  /// @throws ConfigError  a value that its key does not accept
  static ResumeSettings from(const Sections& sections);
};

}  // namespace lockstep::engine
