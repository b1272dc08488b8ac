// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <span>

namespace lockstep::mpi {

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
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace lockstep::mpi
