// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/hash.hpp"
#include "data/stores/list_text.hpp"

namespace lockstep::data {

/// Reads a whole file. Errors of a network file system that can be transient (EIO, ESTALE, ...) are retried after 0.1,
/// 1 and 10 s.
/// @param max_bytes  larger files are refused before memory is requested
/// @param bytes      can hold the result; its memory is reused
/// @throws DataError  missing, unreadable, not a regular file, or too large
std::span<const std::byte> read_file(const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& bytes);

/// Requests that the system reads a file in advance. Errors are ignored.
void read_file_ahead(const std::string& path) noexcept;

/// The image files of a list.
class FileStore : public ImageStore {
 public:
  struct FileStoreOptions {
    std::string root;  ///< folder to which the paths of the list are relative
    std::int64_t classes = 0;
    std::vector<std::string> class_names = {};
    std::vector<std::int64_t> numbers = {};  ///< number of the class for each number in the list; empty = the same
    std::int64_t max_file_bytes = 0;
    bool has_label_sets = false;  ///< images can have several classes
    bool are_masks = false;       ///< the files are the masks of the list instead of its images
  };

  FileStore(std::shared_ptr<const ListLines> lines, FileStoreOptions options);

  const StoreFacts& facts() const override { return facts_; }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override;
  ImageTarget target(std::int64_t index) const override;
  std::string name(std::int64_t index) const override;
  std::string place(std::int64_t index) const override;
  std::uint64_t digest() const override;

 private:
  /// The path of a file as the list states it.
  std::string_view listed_path(std::int64_t index) const;

  std::shared_ptr<const ListLines> lines_;
  FileStoreOptions options_;
  StoreFacts facts_;
  LazyDigest digest_;
};

}  // namespace lockstep::data
