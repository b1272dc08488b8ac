// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

/// The settings for keeping the best checkpoints.
struct BestSettings {
  std::int64_t keep = 1;                 ///< 0 = none
  Cited<std::string> metric = {"auto"};  ///< auto: val/loss, where nobody knows the task
  std::string rule = "auto";             ///< less, greater, or auto: derived from the name of the metric

  bool operator==(const BestSettings&) const = default;
};

/// When checkpoints are saved, how, and which are kept.
struct SavingSettings {
  std::int64_t every_steps = 0;   ///< 0 = off
  std::int64_t every_epochs = 0;  ///< 0 = off
  double every_seconds = 900;     ///< 0 = off
  std::int64_t begin = 0;         ///< first step at which checkpoints are saved
  bool has_optimizer = true;      ///< whether checkpoints contain the state of the optimizer
  bool has_schedule = true;       ///< whether they contain the rules of the schedule and their state
  std::string local_dir;          ///< folder on a fast local disk of rank 0; empty = none
  bool is_async = true;
  std::string mode = "replicated";  ///< replicated, sharded or single
  int writers = 0;                  ///< ranks that write a sharded checkpoint; 0 = one for each host
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;  ///< 0 = none
  double keep_age_hours = 0;    ///< 0 = none
  BestSettings best = {};
  std::int64_t verify_every = 10;  ///< 0 = none
  std::int64_t max_failures = 5;

  /// All keys of section `ckpt`.
  static KeySpecs keys();
  static SavingSettings from(const Section& ckpt);
  bool operator==(const SavingSettings&) const = default;
};

}  // namespace lockstep::engine
