// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>

namespace lockstep {

/// Lets the allocator of this process use freed memory again instead of returning it to the system: tensors then come
/// from memory that the process has used before. A program calls it when it starts.
void keep_freed_memory() noexcept;

/// Memory without values on a multiple of `alignment`, which is a power of two; null = there is not as much.
std::shared_ptr<std::byte> aligned_memory(std::size_t bytes, std::size_t alignment);

/// Zeroed memory that begins on 64 bytes. Where it is large it lies on huge pages, if the kernel has them: loops over
/// all parameters, which memory alone limits, then run up to a fifth faster.
/// @throws std::bad_alloc
std::shared_ptr<std::byte> zeroed_memory(std::size_t bytes);

/// Exit code of a run that could not get memory. See docs/errors.md.
inline constexpr ExitCode kOutOfMemory{7};

/// Remembers the size of a request that this thread could not be given, for the message of the failure.
void note_refused_memory(std::size_t bytes) noexcept;

/// Whether the failure is that of a request for memory of the host or of a GPU, in this program, LibTorch or NCCL.
bool is_out_of_memory(const std::exception& failure);

/// The same failure as an error with exit code 7, which states what was requested, in use and available.
Error out_of_memory_error(const std::exception& failure);

/// The same for memory of a GPU that was not requested through LibTorch.
Error gpu_out_of_memory_error(std::size_t requested_bytes);

/// Keeps a description of a GPU's memory at the moment at which it refused a request. From any thread.
void note_gpu_memory(std::string description);
/// The last one that was noted; empty = none.
std::string noted_gpu_memory();

}  // namespace lockstep
