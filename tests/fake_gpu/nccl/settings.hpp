// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::fake_gpu::nccl {

// The environment of the fake NCCL is read here and nowhere else. Each communicator reads it when it begins.

/// FAKE_GPU_NCCL_POLLS: how often ncclCommGetAsyncError answers "in progress" before a call takes effect.
int polls_in_progress();

/// The name of this host for NCCL: NCCL_HOSTID, else the name that the kernel has.
std::string host_id();

}  // namespace lockstep::fake_gpu::nccl
