// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/snapshot.hpp"

#include <cstring>
#include <new>
#include <sys/mman.h>

#include "core/system/memory.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kCopyAlignment = 64;  // alignment of each copied array
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t rounded(std::size_t bytes, std::size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  std::shared_ptr<std::byte> memory = aligned_memory(bytes, kHugePage);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory.get(), bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

Archive Snapshot::copy(const Archive& archive) {
  std::size_t total = 0;
  for (const std::string& path : archive.array_paths()) {
    const Array& array = archive.array(path);
    if (!array.is_stable) total += rounded(array.bytes.size(), kCopyAlignment);
  }
  if (total > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = allocate(rounded(total, kHugePage));
    capacity_ = rounded(total, kHugePage);
  }
  std::size_t used = 0;
  return archive.with_arrays([&](const std::string&, const Array& array) {
    if (array.is_stable) return array;
    std::byte* const target = memory_.get() + used;
    if (!array.bytes.empty()) std::memcpy(target, array.bytes.data(), array.bytes.size());
    used += rounded(array.bytes.size(), kCopyAlignment);
    return Array{.dtype = array.dtype, .shape = array.shape, .bytes = {target, array.bytes.size()}, .owner = memory_};
  });
}

}  // namespace lockstep::checkpoints
