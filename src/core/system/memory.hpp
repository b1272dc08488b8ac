// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

namespace lockstep {

/// Memory without values on a multiple of `alignment`, which is a power of two; null = there is not as much.
std::shared_ptr<std::byte> aligned_memory(std::size_t bytes, std::size_t alignment);

/// Zeroed memory that begins on 64 bytes. Where it is large it lies on huge pages, if the kernel has them: loops over
/// all parameters, which memory alone limits, then run up to a fifth faster.
/// @throws std::bad_alloc
std::shared_ptr<std::byte> zeroed_memory(std::size_t bytes);

}  // namespace lockstep
