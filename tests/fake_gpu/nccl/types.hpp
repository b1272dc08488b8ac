// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <cstddef>
#include <span>

namespace lockstep::fake_gpu::nccl {

/// @return  bytes of one value; 0 for a type that does not exist
std::size_t size_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);
bool is_known(ncclRedOp_t op);
const char* name_of(ncclRedOp_t op);

/// Combines `count` values of each source in the order of the sources. 16-bit values are combined as float32 and
/// rounded once, which real NCCL does not promise. An average of integers is truncated.
/// @param target  may be one of the sources
void reduce(std::span<const std::byte* const> sources, std::byte* target, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op);

}  // namespace lockstep::fake_gpu::nccl
