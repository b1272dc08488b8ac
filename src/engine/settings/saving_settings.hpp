// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <string>

#include "core/keys/cited.hpp"
#include "core/text/every.hpp"

namespace lockstep::engine {

/// The settings for keeping the best checkpoints.
struct BestSettings {
  std::int64_t keep = 1;                 ///< 0 = none
  Cited<std::string> metric = {"auto"};  ///< auto: val/loss, where nobody knows the task
  std::string better = "auto";           ///< lower, higher, or auto: derived from the name of the metric

  bool operator==(const BestSettings&) const = default;
};

/// When checkpoints are saved, how, and which are kept.
struct SavingSettings {
  static constexpr std::int64_t kAutomatic = -1;  ///< memory_every is chosen by the time that copies take

  Every every = Every({.seconds = 900});
  Begin begin = {};           ///< first step or epoch at which checkpoints are saved
  bool has_optimizer = true;  ///< whether checkpoints contain the state of the optimizer
  bool has_schedule = true;   ///< whether they contain the rules of the schedule and their state
  std::string local_dir;      ///< folder on a fast local disk of rank 0; empty = none
  bool is_async = true;
  std::string layout = "folder";  ///< folder, shards or file
  int writers = 0;                ///< ranks that write a checkpoint in shards; 0 = one for each host
  std::int64_t memory_every = 0;  ///< steps between copies in the memory of the host; 0 = none, or kAutomatic
  bool has_partner = false;       ///< another host gets these copies, too
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;  ///< 0 = none
  double keep_age_hours = 0;    ///< 0 = none
  BestSettings best = {};
  std::int64_t verify_every = 10;  ///< 0 = none
  std::int64_t max_failures = 5;
  bool allows_nonfinite = false;  ///< resume.allow_nonfinite: also parameters with NaN or infinity are saved

  /// All keys of section `ckpt`.
  static KeySpecs keys();
  static SavingSettings from(const Section& ckpt);
  bool operator==(const SavingSettings&) const = default;
};

}  // namespace lockstep::engine
