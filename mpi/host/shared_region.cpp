// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/shared_region.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <utility>

#include "mpi/host/shared_file.hpp"
#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kRegionPageBytes = 4096;

std::span<std::byte> map(const SharedFile& file, std::size_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) throw no_memory(bytes, std::strerror(errno));
  madvise(address, bytes, MADV_HUGEPAGE);  // no effect unless the kernel allows it for shared memory
  return {static_cast<std::byte*>(address), bytes};
}

/// Reserves bytes [begin, begin + count) of the file, in steps that a frequent signal cannot interrupt forever.
void reserve(const SharedFile& file, std::size_t begin, std::size_t count) {
  constexpr std::size_t kStepBytes = 64 << 20;
  for_each_chunk(count, kStepBytes, [&](std::size_t offset, std::size_t length) {
    int error = EINTR;
    while (error == EINTR) {
      error = posix_fallocate(file.descriptor(), static_cast<off_t>(begin + offset), static_cast<off_t>(length));
    }
    if (error != 0) throw no_memory(length, std::strerror(error));
  });
}

}  // namespace

SharedRegion::SharedRegion(const Communicator& host, std::size_t bytes) {
  if (bytes == 0) return;
  host.all_or_throw([&] {
    if (host.is_root()) require_memory(bytes);
  });
  SharedFile file = share_memfd(host, bytes);
  if (!file.is_open()) file = share_by_name(host, bytes);

  // Each rank reserves its part, near the processor that will use it.
  const std::size_t part = (bytes / host.size() + kRegionPageBytes) / kRegionPageBytes * kRegionPageBytes;
  const std::size_t begin = std::min(bytes, part * host.rank());
  std::span<std::byte> mapped;
  try {
    host.all_or_throw([&] {
      mapped = map(file, bytes);
      reserve(file, begin, std::min(bytes, begin + part) - begin);
    });
  } catch (const CommError&) {
    if (!mapped.empty()) munmap(mapped.data(), mapped.size());
    throw;
  }
  bytes_ = mapped;
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  SharedRegion taken(std::move(other));
  std::swap(bytes_, taken.bytes_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace lockstep::mpi
