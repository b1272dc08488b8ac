// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>

#include <cstdint>
#include <string>

namespace lockstep::engine {

/// Key `rename` of a section.
/// @throws ConfigError  see parse_renames
Renames renames_of(const Section& section);

/// Key `resume` and section `resume`: from which checkpoint a run resumes, and how.
struct ResumeSettings {
  std::string source = "none";      ///< none, auto, must, a step or a path
  std::int64_t max_fallback = 3;    ///< older checkpoints to try when the newest cannot be read
  std::int64_t max_starts = 3;      ///< starts of a requeued job from one step; 0 = unlimited
  bool allow_fresh = false;         ///< start from the beginning when no checkpoint can be read
  bool allow_nonfinite = false;     ///< resume from parameters that contain NaN or infinity
  bool admits_memory = true;        ///< resume from a copy in memory that is newer than the checkpoints; not a key
  bool fork = false;                ///< resume in a folder with checkpoints of another run
  std::string schedule = "config";  ///< the schedule that holds when it changed: config or checkpoint
  RestoreOptions restore = {};

  /// Key `resume` first, then those of the section.
  static KeySpecs keys();
  /// @throws ConfigError  a value that its key does not accept
  static ResumeSettings from(const Sections& sections);
};

}  // namespace lockstep::engine
