// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::fake_gpu {

/// Operations that run one after the other: a stream, a branch of a graph, the host.
using Timeline = std::uint32_t;
using Time = std::uint64_t;

/// The place of one operation.
struct Stamp {
  Timeline timeline = 0;
  Time time = 0;  ///< 1 for the first operation of a timeline
  bool operator==(const Stamp&) const = default;
};

/// How far each timeline has come before something else begins (a vector clock).
class VectorClock {
 public:
  [[nodiscard]] Time at(Timeline timeline) const;
  [[nodiscard]] const std::vector<Stamp>& stamps() const { return stamps_; }
  void raise(const Stamp& stamp);
  void join(const VectorClock& other);

 private:
  std::vector<Stamp> stamps_;  ///< one per timeline, in the order of the timelines
};

[[nodiscard]] inline bool is_before(const Stamp& stamp, const VectorClock& clock) {
  return stamp.time <= clock.at(stamp.timeline);
}

}  // namespace lockstep::fake_gpu
