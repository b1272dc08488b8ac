// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::mpi::gpu {

/// See ModuleApi::watch_memory.
void observe_refusals(void (*observe)(const char* description));

/// Does the same for a request on the current device that was not LibTorch's.
/// @return  a sentence about it in the words of LibTorch
std::string describe_refusal(std::size_t requested);

}  // namespace lockstep::mpi::gpu
