// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "core/cited.hpp"
#include "engine/loop/intervals.hpp"

namespace lockstep::engine {

/// The keys that define evaluations between epochs.
struct PhaseSettings {
  Cited<std::string> pattern = {};  ///< train.phases: such as train:2,test; empty = as section `eval` says
  Intervals interval = 0;           ///< of section `eval`, as the following
  Intervals every_epochs = 1;
  std::int64_t begin_epoch = 1;

  /// Key phases of section `train`; the others are those of EvalSettings.
  static KeySpecs keys();
  static PhaseSettings from(const Section& train, const Section& eval);
  bool operator==(const PhaseSettings&) const = default;
};

/// In which order a run trains epochs and evaluates between them. A pure function of the number of epochs done, so that
/// a resumed run needs nothing else.
class Phases {
 public:
  /// @param settings  a pattern that is repeated; or, where it is empty, the epochs after which there is an evaluation.
  ///                  After the last epoch there always is one
  /// @throws ConfigError  a pattern without training, other words or counts below 1, or both ways of saying it
  explicit Phases(const PhaseSettings& settings);

  /// Whether an evaluation follows when `epochs` are done.
  /// @param is_last  they are all
  bool is_test_due(std::int64_t epochs, bool is_last) const;

  /// The phases of a run, 'T' for an epoch of training and 't' for an evaluation.
  std::string plan(std::int64_t epochs) const;
  /// Phases of both kinds that are done when `epochs` are, but not yet the evaluation that may follow them.
  std::int64_t done_before(std::int64_t epochs) const;

 private:
  std::vector<bool> pattern_;  // for each epoch of it, whether an evaluation follows; empty = by the numbers below
  Intervals every_ = 1;
  std::int64_t begin_ = 1;
};

}  // namespace lockstep::engine
