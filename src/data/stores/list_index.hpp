// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/source/mapped_file.hpp"
#include "data/stores/list_text.hpp"

namespace lockstep::data {

/// The facts that a list is read as, and the state of its file.
struct ListIndexKey {
  std::string cache;  ///< folder of the indices
  std::string list;   ///< path of the list
  ListTarget target = ListTarget::classes;
  FileStamp stamp = {};
};

/// The result of reading a list, in a file that all processes of a host map: the positions of its lines, and facts
/// about all of them. The file `<cache>/<hash of path and target>.lines` is valid for a list with the same size, times
/// and inode, and contains digests of itself.
class ListIndex {
 public:
  /// Maps the index of a list. @return  null = there is none for this state of the list, or it is damaged
  static std::shared_ptr<const ListIndex> find(const ListIndexKey& key);
  /// Writes the index of a list completely or not at all. @return  whether it was written
  static bool write(const ListIndexKey& key, const ListFacts& facts, std::span<const std::uint64_t> starts);

  const ListFacts& facts() const noexcept { return facts_; }
  /// The position of each line in the text.
  std::span<const std::uint64_t> starts() const noexcept { return starts_; }
  /// Call it after starts were read.
  /// @throws DataError  the file became shorter
  void check() const { file_.check(); }

 private:
  explicit ListIndex(const std::string& path) : file_(path) {}
  bool take(const ListIndexKey& key);

  MappedFile file_;
  ListFacts facts_;
  std::span<const std::uint64_t> starts_;
};

}  // namespace lockstep::data
