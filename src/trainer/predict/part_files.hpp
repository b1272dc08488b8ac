// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A file that all ranks write together: each rank writes a part next to it, and the root joins the parts.
namespace lockstep::trainer {

using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// The part of one rank: <path>.part-00002. It is deleted with the object, unless the root has joined it.
class PartFile {
 public:
  /// @throws ConfigError  the file cannot be created, with the reason
  PartFile(const std::string& path, int rank);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// @throws ConfigError  the bytes cannot be written, with the reason
  void write(std::string_view bytes);
  /// Writes what is buffered, and closes the file.
  /// @return  the size of the part in bytes
  std::int64_t close();

 private:
  std::string path_;  // path of the joined file, for messages
  std::string part_;
  OpenFile file_;
  std::int64_t size_ = 0;
};

/// Deletes the parts that an earlier run left. On the root, before the parts are created.
void remove_parts(const std::string& path);

/// Appends the parts of the other ranks to that of the root, and makes the result durable. It becomes the file with
/// publish_parts. On the root.
/// @param sizes  of all parts, in rank order
/// @throws ConfigError  a part cannot be read, or the result cannot be written
void join_parts(const std::string& path, const std::vector<std::int64_t>& sizes);

/// Replaces the file by the joined parts. On the root.
void publish_parts(const std::string& path);

}  // namespace lockstep::trainer
