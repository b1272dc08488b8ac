// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

void add(Counters& sum, const Counters& other);

/// Adds what a call did to the counters of the process.
void count(const Counters& done);
const Counters& counted();

}  // namespace lockstep::fake_gpu
