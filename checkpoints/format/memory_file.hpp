// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "checkpoints/format/hdf5.hpp"

namespace lockstep::checkpoints {

/// A file in memory that HDF5 writes its metadata to, or reads from: an HDF5 file driver.
///
/// HDF5 itself never touches the disk, so no full disk and no failing one can reach it: after a failed write it leaves
/// its file open and crashes when the process ends. We move the bytes ourselves. Of a file being laid out only the
/// pages that HDF5 writes exist, so that space for arrays, which it merely allocates, costs no memory (HDF5's own core
/// driver would allocate it).
class MemoryFile {
 public:
  /// Empty and writable.
  MemoryFile() = default;
  /// Read-only; `content` must outlive this.
  explicit MemoryFile(std::span<const std::byte> content)
      : content_(content), end_(content.size()), is_writable_(false) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// The file access list that makes H5Fcreate and H5Fopen use this memory, whatever name they are given.
  Handle access_list();

  /// Bytes of the file, allocated space included.
  std::uint64_t end() const noexcept { return end_; }
  void set_end(std::uint64_t end) noexcept { end_ = end; }
  /// Copies bytes from `offset` on; what was never written is zero.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// @return  false when the file is read-only
  bool write(std::uint64_t offset, std::span<const std::byte> bytes);

 private:
  using Page = std::array<std::byte, 4096>;

  std::span<const std::byte> content_;
  std::map<std::uint64_t, Page> pages_;  ///< pages by number
  std::uint64_t end_ = 0;
  bool is_writable_ = true;
};

}  // namespace lockstep::checkpoints
