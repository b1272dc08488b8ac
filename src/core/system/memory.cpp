// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

#include "core/system/out_of_memory.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

std::shared_ptr<std::byte> aligned_memory(std::size_t bytes, std::size_t alignment) {
  const bool is_possible = bytes < PTRDIFF_MAX - alignment;
  void* const memory =
      is_possible ? std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment) : nullptr;
  if (memory == nullptr) return nullptr;
  return {static_cast<std::byte*>(memory), [](std::byte* begin) { std::free(begin); }};
}

std::shared_ptr<std::byte> zeroed_memory(std::size_t bytes) {
  const std::size_t alignment = bytes < 2 * kHugePageBytes ? kLineBytes : kHugePageBytes;
  const std::shared_ptr<std::byte> memory = aligned_memory(bytes, alignment);
  if (memory == nullptr) {
    note_refused_memory(bytes);
    throw std::bad_alloc();
  }
  // Whole pages only: the last part of one would cost as much memory as all of it.
  if (alignment == kHugePageBytes) madvise(memory.get(), bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

}  // namespace lockstep
