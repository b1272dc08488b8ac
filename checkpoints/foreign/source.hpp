// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/format/names.hpp"

/// Declarations that the readers of foreign files share.
namespace lockstep::checkpoints {

/// Bytes in memory of their own, on a multiple of 64, or those of a mapped file.
struct OwnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// @throws CheckpointError  no memory; without a path
std::shared_ptr<std::byte> allocate_aligned(std::uint64_t bytes);

/// A file to be read piece by piece, or bytes at hand that stand for one.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;
  /// @throws CheckpointError  bytes outside of the file
  void read_to(std::uint64_t offset, std::span<std::byte> out) const;
  OwnedBytes read(std::uint64_t offset, std::uint64_t count) const;
  /// The bytes where the system has the file in memory, shared by all processes, if it can be mapped and they begin on
  /// a multiple of `alignment`; else a copy, as `read`. The file must not change while they are used: bytes that
  /// it loses become zeros, see require_unchanged.
  OwnedBytes view(std::uint64_t offset, std::uint64_t count, std::uint64_t alignment) const;

  /// Throws a CheckpointError with the path, and with what inside it is at fault.
  [[noreturn]] void refuse(const std::string& message, CheckpointFault fault = CheckpointFault::damaged) const;
  [[noreturn]] void refuse(const std::string& object, const std::string& message,
                           CheckpointFault fault = CheckpointFault::damaged) const;

 private:
  void require_inside(std::uint64_t offset, std::uint64_t count) const;
  virtual void copy(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// The whole file; nothing if it is not in memory.
  virtual OwnedBytes mapped() const { return {}; }
};

class DiskSource : public ByteSource {
 public:
  /// @param is_mapped  views are the mapped bytes of the file, not copies
  explicit DiskSource(const std::string& path, bool is_mapped = false)
      : path_(path), file_(path), is_mapped_(is_mapped) {}
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return file_.size(); }
  /// The bytes where the system has the file in memory, whatever `is_mapped` is. Nothing if it cannot be mapped.
  OwnedBytes map() const;

 private:
  void copy(std::uint64_t offset, std::span<std::byte> out) const override { file_.read(offset, out); }
  OwnedBytes mapped() const override { return is_mapped_ ? map() : OwnedBytes(); }

  std::string path_;
  ExistingFile file_;
  bool is_mapped_;
  mutable OwnedBytes mapped_;  // set by the first view or by map()
};

/// Drops the pages of a view of a mapped file from memory; see release_pages of an Array.
void release_pages(const OwnedBytes& block);

/// Bytes that must outlive it.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes, std::string path = "memory")
      : path_(std::move(path)), bytes_(bytes) {}
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return bytes_.size(); }

 private:
  void copy(std::uint64_t offset, std::span<std::byte> out) const override;

  std::string path_;
  std::span<const std::byte> bytes_;
};

/// The amount that a file may claim beyond its own bytes (compressed records, views that repeat a value): 100 times its
/// size, and 64 MiB in any case.
class Expansion {
 public:
  explicit Expansion(const ByteSource& source);
  /// @throws CheckpointError  it is more
  void take(const std::string& object, std::uint64_t bytes);

 private:
  const ByteSource& source_;
  std::uint64_t left_ = 0;
};

/// A name of the file as a part of a path.
/// @throws CheckpointError  empty, too long or no UTF-8
std::string part_of(const ByteSource& source, const std::string& name);

/// Archive::put, having checked that the bytes of booleans are 0 or 1.
/// @throws CheckpointError  they are not, or the path is taken
void put_array(const ByteSource& source, Archive& archive, const std::string& path, Array array);

/// Archive::link: a second name of an array.
/// @throws CheckpointError  the path is taken
void link_array(const ByteSource& source, Archive& archive, const std::string& path, const std::string& first);

/// An attribute of `group`; a long text becomes an array below `text_group`.
void put_attribute(const ByteSource& source, Archive& archive, const std::string& group, const std::string& name,
                   Attribute value, const std::string& text_group);

/// Texts of a file as a whole, as attributes of "/".
void put_metadata(const ByteSource& source, Archive& archive, const std::string& name, const std::string& text);

/// Little-endian numbers inside a block.
template <class Value>
Value load(std::span<const std::byte> bytes, std::size_t offset) {
  Value value{};
  const auto from = bytes.subspan(offset, sizeof value);
  std::copy(from.begin(), from.end(), std::as_writable_bytes(std::span(&value, 1)).begin());
  return value;
}

}  // namespace lockstep::checkpoints
