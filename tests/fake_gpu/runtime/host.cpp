// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/host.hpp"

#include <algorithm>

#include "fake_gpu/runtime/counters.hpp"
#include "fake_gpu/runtime/order.hpp"

namespace lockstep::fake_gpu {

namespace {

struct Host {
  Timeline timeline = new_timeline();
  VectorClock known;       ///< known over
  VectorClock waited_for;  ///< work that calls of the host waited for
  VectorClock step;        ///< queued before the current step
};

Host& host() {
  static Host& only = *new Host;
  return only;
}

}  // namespace

const VectorClock& host_clock() { return host().known; }

void learn(const VectorClock& clock) { host().known.join(clock); }

void count_wait(const VectorClock& clock) {
  bool is_new = false;
  bool is_of_step = false;
  for (const Stamp& stamp : clock.stamps()) {
    if (stamp.timeline == host().timeline || is_before(stamp, host().waited_for)) continue;
    is_new = true;
    is_of_step = is_of_step || !is_before(stamp, host().step);
  }
  if (is_new) count(is_of_step ? Counters{.synchronizations = 1} : Counters{.late_waits = 1});
  host().waited_for.join(clock);
}

void wait_for(const VectorClock& clock) {
  count_wait(clock);
  learn(clock);
}

void access_from_host(const char* name, const Range& range) {
  VectorClock& known = host().known;
  check_accesses({range}, {next_stamp(host().timeline, known), name, call_site()}, known);
}

void begin_step_of_host() { host().step = latest_stamps(); }

}  // namespace lockstep::fake_gpu
