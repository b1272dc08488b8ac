// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep::mpi {

/// A nameless file in memory that all ranks of a host hold open; closed when it goes out of scope.
class SharedFile {
 public:
  SharedFile() = default;
  explicit SharedFile(int descriptor) : descriptor_(descriptor) {}
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  int descriptor() const noexcept { return descriptor_; }
  bool is_open() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// A memfd of the first rank, which the others open through /proc. Collective over `host`.
/// @return  on every rank a closed file where one rank may not do that (another container, a hardened kernel)
SharedFile share_memfd(const Communicator& host, std::size_t bytes);

/// A file in /dev/shm under a random name that is gone when this returns. Collective over `host`.
/// @throws CommError  on every rank
SharedFile share_by_name(const Communicator& host, std::size_t bytes);

/// Throws CommError where the host cannot have `bytes` more memory.
void require_memory(std::size_t bytes);

/// The one sentence about `bytes` that cannot be had.
CommError no_memory(std::size_t bytes, const std::string& why);

/// Zeroed memory that all ranks of one host map, each at an address of its own.
///
/// Backed by a memfd that the host's first rank makes and the others open, so the size of /dev/shm does not matter and
/// no exit, however sudden, leaves anything behind. Its pages are reserved when it is made: too little memory is an
/// error here, not a SIGBUS later. Move-only; a moved-from region is empty.
class SharedRegion {
 public:
  SharedRegion() = default;
  /// Collective over `host`, whose ranks must share a host.
  /// @param bytes  the same on every rank; 0 gives an empty region
  /// @throws CommError  the memory cannot be had, on every rank, with the number of bytes
  SharedRegion(const Communicator& host, std::size_t bytes);

  std::span<std::byte> bytes() const noexcept { return {memory_.get(), memory_ ? memory_.get_deleter().bytes : 0}; }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Unmap> memory_;
};

}  // namespace lockstep::mpi
