// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime/accesses.hpp"
#include "fake_gpu/runtime/clock.hpp"

/// The order of events. It is known when work is queued, so a race is found in every schedule, whether or not it
/// takes effect.
namespace lockstep::fake_gpu {

Timeline new_timeline();

/// The next place of a timeline, which `clock` learns.
Stamp next_stamp(Timeline timeline, VectorClock& clock);

/// How far each timeline has come.
const VectorClock& latest_stamps();

/// Ends the process if a range is not ordered behind what was done with its memory, or lies in memory that was freed.
/// @param clock  what is before the access, itself included
void check_accesses(const std::vector<Range>& ranges, const Access& access, const VectorClock& clock);

void forget_accesses(const void* begin, std::size_t bytes);

}  // namespace lockstep::fake_gpu
