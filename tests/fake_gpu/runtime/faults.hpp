// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

/// Whether this allocation fails by plan: the n-th one, and the next if it asks for as much.
bool must_fail(std::size_t bytes);

/// The work of a launch that fails by plan.
[[noreturn]] void fail_by_plan();

}  // namespace lockstep::fake_gpu
