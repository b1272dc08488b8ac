// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::data {

/// A file's bytes, mapped read-only: pages are read when they are touched.
class MappedFile {
 public:
  /// @throws DataError  it is missing, no regular file, or cannot be read
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::uint8_t> bytes() const noexcept { return bytes_; }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace lockstep::data
