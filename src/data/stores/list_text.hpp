// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/mapped_file.hpp"

namespace lockstep::data {

/// Digests of a text: of its first line, and of the rest, which the first line of a cached list contains.
struct TextDigest {
  std::uint64_t first = 0;
  std::uint64_t rest = 0;

  bool operator==(const TextDigest&) const = default;
};

TextDigest digest_of(std::string_view text);

/// The text of a list of files: a mapped file, which the processes of a host share, or memory.
class ListText {
 public:
  /// @param name  name of the text in messages
  ListText(std::string text, std::string name) : memory_(std::move(text)), name_(std::move(name)) {}
  /// @throws DataError  the file cannot be read
  explicit ListText(const std::string& path);
  /// Remembers the digest for check_unchanged without reading the text. Call it before the text is used.
  void set_digest(const TextDigest& digest) { digest_ = digest; }
  /// The digest that is remembered, or computed now and remembered.
  const TextDigest& digest();
  /// Call it after a part of the text was read. The digest must be known. Another time of the last change alone is
  /// accepted.
  /// @throws DataError  the content of the file is no longer the same
  void check_unchanged() const;

  std::string_view text() const noexcept {
    if (!file_) return memory_;
    return {reinterpret_cast<const char*>(file_->bytes().data()), file_->bytes().size()};
  }
  const std::string& name() const noexcept { return name_; }
  /// The state of the file when it was mapped; nullopt = the text is in memory.
  const std::optional<FileStamp>& stamp() const noexcept { return stamp_; }

 private:
  std::unique_ptr<const MappedFile> file_;
  std::optional<FileStamp> stamp_;
  std::unique_ptr<std::atomic<std::int64_t>> modified_ns_;  // latest time stamp with this digest
  std::optional<TextDigest> digest_;
  std::string memory_;
  std::string name_;
};

/// One line of a list.
struct ListLine {
  std::string_view path;
  std::string_view label;  ///< text after the last blank; empty if lists have no labels
};

/// The targets in a list.
enum class ListTarget {
  classes,  ///< "path 3" or, for several classes of one image, "path 3,17"
  numbers,  ///< "path 0.25" or "path 0.25,3": real numbers, as many in each line
  masks,    ///< "path mask": the path of an image with the class of each pixel. The last tab separates, if there is one
  none      ///< "path": the rest of the line is the path, with its blanks
};

/// Facts about all lines of a list.
struct ListFacts {
  std::int64_t max_label = -1;  ///< -1 = none
  bool has_several = false;     ///< a line has several classes
  std::int64_t classes = 0;     ///< the number of classes that lines_digest includes
  std::uint64_t lines_digest = 0;
  TextDigest text = {};
};

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

/// The lines of a list file "<path><blank or tab><label>": the last blank separates. Empty lines and lines that start
/// with '#' are skipped; line ends can be CRLF. Needs 8 bytes of memory per line, or none with an index, which the
/// processes of a host share. All members are thread-safe.
class ListLines {
 public:
  struct ListOptions {
    ListTarget target = ListTarget::classes;
    std::int64_t classes = 0;  ///< labels must be less than this; 0 = unlimited
    std::string rule = {};     ///< origin of `classes` in messages, such as "data.classes"
    std::string cache = {};    ///< folder that keeps the index of the lines, see ListIndex; "" = none
  };

  /// Reads all lines once, or takes the index of an earlier reading.
  /// @throws DataError  a line has no label, or one that is malformed or out of range; the list is empty
  ListLines(ListText text, const ListOptions& options);

  /// @throws DataError  the content of the list's file changed since it was read
  void check_unchanged() const;
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(starts_.size()); }
  /// Whether the lines come from an index.
  bool has_index() const noexcept { return index_ != nullptr; }
  ListLine line(std::int64_t index) const;
  /// The class of a line with one class.
  std::int64_t label(std::int64_t index) const;
  /// The classes of a line; empty if none is given ("path -").
  std::vector<std::int64_t> labels(std::int64_t index) const;
  /// The real numbers of a line.
  std::vector<double> numbers(std::int64_t index) const;
  /// How many real numbers each line has; 0 if the targets are others.
  std::int64_t numbers_per_line() const;
  /// The number of classes: that of the options, else the largest label plus 1; 0 if the targets are not classes.
  std::int64_t classes() const noexcept;
  /// Whether a line has several classes.
  bool has_several() const noexcept { return facts_.has_several; }
  /// A digest of all lines and of a number of classes.
  std::uint64_t digest(std::int64_t classes) const;
  const ListOptions& options() const noexcept { return options_; }
  const std::string& name() const noexcept { return text_.name(); }
  std::string_view text() const noexcept { return text_.text(); }

 private:
  /// The key that the index must fit; nullopt = there is no file, no cache, or the file has just been changed.
  std::optional<ListIndexKey> index_key() const;
  bool take_index(const ListIndexKey& key);
  void read_lines();
  ListLine line_at(std::size_t start) const;
  void check(const ListLine& line, std::int64_t number);
  void check_numbers(const ListLine& line, std::int64_t number);
  void check_class(std::string_view word, const ListLine& line, std::int64_t number);

  ListText text_;
  ListOptions options_;
  ListFacts facts_;
  std::shared_ptr<const ListIndex> index_;
  std::vector<std::uint64_t> own_starts_;  // only used if there is no index
  std::span<const std::uint64_t> starts_;
};

/// The lines of a text file, one class name each; empty lines at the end do not count.
/// @throws DataError  the file cannot be read, or a line between names is empty
std::vector<std::string> read_class_names(const std::string& path);

}  // namespace lockstep::data
