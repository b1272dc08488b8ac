// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstddef>

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

}  // namespace lockstep::mpi
