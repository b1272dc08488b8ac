// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::engine {

/// In which order a run trains epochs and evaluates between them. A pure function of the number of epochs done, so that
/// a resumed run needs nothing else.
class Phases {
 public:
  /// @param train  `phases`: a pattern that is repeated, such as train:2,test. Empty: as section `eval` says
  /// @param eval   `every_epochs`, `begin_epoch`: the epochs after which there is an evaluation; the last one always is
  /// @throws ConfigError  a pattern without training, other words or counts below 1, or both ways of saying it
  Phases(const Section& train, const Section& eval);

  /// Whether an evaluation follows when `epochs` are done.
  /// @param is_last  they are all
  bool is_test_due(std::int64_t epochs, bool is_last) const;

  /// The phases of a run, 'T' for an epoch of training and 't' for an evaluation.
  std::string plan(std::int64_t epochs) const;
  /// Phases of both kinds that are done when `epochs` are, but not yet the evaluation that may follow them.
  std::int64_t done_before(std::int64_t epochs) const;

 private:
  std::vector<bool> pattern_;  // for each epoch of it, whether an evaluation follows; empty: by the numbers below
  std::int64_t every_ = 1;
  std::int64_t begin_ = 1;
};

}  // namespace lockstep::engine
