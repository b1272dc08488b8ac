// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime/clock.hpp"

/// The host is one timeline: races between its threads are not seen.
namespace lockstep::fake_gpu {

/// The time that the host knows to be over, which is before all that it queues from now on.
const VectorClock& host_clock();

/// A query found that what `clock` says is over. It costs nothing.
void learn(const VectorClock& clock);

/// The host waits for what `clock` says, without knowing which of it is over afterwards. It is one synchronization if
/// some of it was queued in the current step and no earlier call has waited for it, whether or not it is over by now:
/// otherwise the number would depend on time.
void count_wait(const VectorClock& clock);

/// The host waits for what `clock` says, and knows that it is over.
void wait_for(const VectorClock& clock);

/// The host reads or writes page-locked memory, or frees it.
void access_from_host(const char* name, const Range& range);

/// Later work belongs to a new step.
void begin_step_of_host();

}  // namespace lockstep::fake_gpu
