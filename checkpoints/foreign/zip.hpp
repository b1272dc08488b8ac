// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/source.hpp"

/// Zip archives as PyTorch and NumPy use them: records stored or deflated, in one file, in either size of zip.
namespace lockstep::checkpoints {

/// A 32-bit field has this value if the number is in the extra field of large archives.
inline constexpr std::uint32_t kElsewhere = 0xFFFFFFFF;

struct ZipRecord {
  std::string name;
  std::uint64_t offset = 0;  ///< offset of its bytes in the file
  std::uint64_t stored_bytes = 0;
  std::uint64_t bytes = 0;  ///< once inflated
  std::uint32_t crc = 0;
  bool is_deflated = false;
};

/// The records that one of several processes compares with their CRC-32.
struct ZipShare {
  std::size_t part = 0;
  std::size_t parts = 1;
};

/// The records of an archive, from its central directory. Refuses what a writer of checkpoints has no reason for and a
/// trickster has: encryption, several disks, comments, records that overlap, have equal names, lead out of the archive
/// or have contradicting local headers.
class Zip {
 public:
  explicit Zip(const ByteSource& source, ZipShare checked = {});

  const std::vector<ZipRecord>& records() const noexcept { return records_; }
  /// Null when there is none.
  const ZipRecord* find(const std::string& name) const;
  /// The bytes of a record, inflated. Those of this process's share have the right CRC-32.
  /// @param object  what messages call it
  /// @throws CheckpointError  damaged, or more than `expansion` allows
  OwnedBytes read(const ZipRecord& record, const std::string& object, Expansion& expansion) const;
  const ByteSource& source() const noexcept { return source_; }

 private:
  const ByteSource& source_;
  ZipShare checked_;
  std::vector<ZipRecord> records_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// Writes an archive of stored records, the bytes of each on a multiple of 64.
class ZipWriter {
 public:
  /// @param large_from  minimum number of bytes for 64-bit sizes and offsets
  explicit ZipWriter(NewFile& file, std::uint64_t large_from = 0xFFFFFFFF) : file_(file), large_from_(large_from) {}

  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, const std::string& text) { add(name, std::as_bytes(std::span(text))); }
  /// Writes the directory.
  void finish();

 private:
  NewFile& file_;
  std::uint64_t large_from_;
  std::uint64_t end_ = 0;
  std::uint64_t count_ = 0;
  std::string directory_;
};

}  // namespace lockstep::checkpoints
