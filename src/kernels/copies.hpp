// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::kernels {

/// Copies bytes, past the caches of the processor where it can: for many megabytes that nobody reads soon. Other data
/// then stay in the caches, and the memory of the target is not read before it is written.
/// @param target  of the same size, and separate from the source
void copy_past_caches(std::span<const std::byte> source, std::byte* target) noexcept;

}  // namespace lockstep::kernels
