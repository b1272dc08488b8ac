// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/system/lost_pages.hpp"

namespace lockstep::data {

/// The facts by which another content of a file is recognized without reading it.
struct FileStamp {
  std::uint64_t size = 0;        ///< bytes
  std::int64_t modified_ns = 0;  ///< time of the last change of the content
  std::int64_t changed_ns = 0;   ///< time of the last change of the content or of the file's attributes
  std::uint64_t inode = 0;

  bool operator==(const FileStamp&) const = default;
};

/// A file's bytes, mapped read-only: pages are read when they are touched. If the file becomes shorter while it is
/// mapped, missing bytes are zeros; `check` detects this after bytes were read.
class MappedFile {
 public:
  /// @param key  of the configuration, which names the file; for messages
  /// @throws DataError  it is missing, no regular file, or cannot be read
  explicit MappedFile(const std::string& path, std::string key = "data.path");
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  const std::string& path() const noexcept { return path_; }
  /// Call it after the bytes [begin, end) were read.
  /// @throws DataError  the file became shorter, so that these bytes can be wrong
  void check(std::size_t begin, std::size_t end) const;
  /// The same for all bytes.
  void check() const { check(0, bytes_.size()); }
  /// The state of the file now.
  FileStamp stamp() const;

 private:
  void map();
  [[noreturn]] void fail(const std::string& action) const;

  std::string path_;
  std::string key_;
  int fd_ = -1;
  std::span<const std::uint8_t> bytes_;
  std::unique_ptr<const LostPages> lost_;
};

}  // namespace lockstep::data
