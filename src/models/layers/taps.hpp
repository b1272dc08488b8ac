// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/block.hpp>

#include <list>
#include <vector>

namespace lockstep::models {

/// The taps of this thread in the order in which they run.
std::vector<Tap> active_taps();

/// Gives this thread other taps for its own lifetime.
class ScopedTaps {
 public:
  /// @param taps  in the order in which they run
  explicit ScopedTaps(const std::vector<Tap>& taps);
  ~ScopedTaps();
  ScopedTaps(const ScopedTaps&) = delete;
  ScopedTaps& operator=(const ScopedTaps&) = delete;

 private:
  const ScopedTap* before_;
  std::list<ScopedTap> taps_;
};

}  // namespace lockstep::models
