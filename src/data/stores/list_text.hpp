// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/mapped_file.hpp"

namespace lockstep::data {

/// The text of a list of files: a mapped file, which the processes of a host share, or memory.
class ListText {
 public:
  /// @param name  name of the text in messages
  ListText(std::string text, std::string name) : memory_(std::move(text)), name_(std::move(name)) {}
  /// @throws DataError  the file cannot be read
  explicit ListText(const std::string& path);
  /// Call it after a part of the text was read. Another time of the last change alone is accepted.
  /// @throws DataError  the content of the file is no longer the same
  void check_unchanged() const;

  std::string_view text() const noexcept {
    if (!file_) return memory_;
    return {reinterpret_cast<const char*>(file_->bytes().data()), file_->bytes().size()};
  }
  const std::string& name() const noexcept { return name_; }

 private:
  std::unique_ptr<const MappedFile> file_;
  std::unique_ptr<std::atomic<std::int64_t>> modified_ns_;  // of the content with this digest
  std::uint64_t digest_ = 0;
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
  numbers,  ///< "path 0.25": a real number
  masks,    ///< "path mask": the path of an image with the class of each pixel. The last tab separates, if there is one
  none      ///< "path": the rest of the line is the path, with its blanks
};

/// The lines of a list file "<path><blank or tab><label>": the last blank separates. Empty lines and lines that start
/// with '#' are skipped; line ends can be CRLF. Needs 8 bytes of memory per line. All members are thread-safe.
class ListLines {
 public:
  struct Options {
    ListTarget target = ListTarget::classes;
    std::int64_t classes = 0;  ///< labels must be less than this; 0 = unlimited
    std::string rule = {};     ///< origin of `classes` in messages, such as "data.classes"
  };

  /// Reads all lines once.
  /// @throws DataError  a line has no label, or one that is malformed or out of range; the list is empty
  ListLines(ListText text, const Options& options);

  /// @throws DataError  the content of the list's file changed since it was read
  void check_unchanged() const { text_.check_unchanged(); }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(starts_.size()); }
  ListLine line(std::int64_t index) const;
  /// The class of a line with one class.
  std::int64_t label(std::int64_t index) const;
  /// The classes of a line; empty if none is given ("path -").
  std::vector<std::int64_t> labels(std::int64_t index) const;
  double number(std::int64_t index) const;
  /// Largest label of all lines; -1 = none.
  std::int64_t max_label() const noexcept { return max_label_; }
  /// Whether a line has several classes.
  bool has_several() const noexcept { return has_several_; }
  const Options& options() const noexcept { return options_; }
  const std::string& name() const noexcept { return text_.name(); }
  std::string_view text() const noexcept { return text_.text(); }

 private:
  ListLine line_at(std::size_t start) const;
  void check(const ListLine& line, std::int64_t number);
  void check_class(std::string_view word, const ListLine& line, std::int64_t number);

  ListText text_;
  Options options_;
  std::vector<std::uint64_t> starts_;
  std::int64_t max_label_ = -1;
  bool has_several_ = false;
};

/// The comment lines with which a text begins, without '#' and blanks around them.
std::vector<std::string> leading_comments(std::string_view text);

}  // namespace lockstep::data
