// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/clock.hpp"

#include <algorithm>

namespace lockstep::fake_gpu {

namespace {

bool is_of_earlier_timeline(const Stamp& stamp, Timeline timeline) { return stamp.timeline < timeline; }

}  // namespace

Time VectorClock::at(Timeline timeline) const {
  const auto found = std::lower_bound(stamps_.begin(), stamps_.end(), timeline, is_of_earlier_timeline);
  return found != stamps_.end() && found->timeline == timeline ? found->time : 0;
}

void VectorClock::raise(const Stamp& stamp) {
  const auto found = std::lower_bound(stamps_.begin(), stamps_.end(), stamp.timeline, is_of_earlier_timeline);
  if (found == stamps_.end() || found->timeline != stamp.timeline) {
    stamps_.insert(found, stamp);
  } else {
    found->time = std::max(found->time, stamp.time);
  }
}

void VectorClock::join(const VectorClock& other) {
  if (&other == this) return;
  for (const Stamp& stamp : other.stamps_) raise(stamp);
}

}  // namespace lockstep::fake_gpu
