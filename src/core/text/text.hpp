// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// `text` without spaces, tabs and line ends at its beginning and end.
std::string trimmed(const std::string& text);

/// The parts of `text` between `separator`s, as they are. An empty text has one part, which is empty.
std::vector<std::string> split(const std::string& text, char separator);

/// The parts of `text` between `separator`s, trimmed. A separator inside parentheses or brackets does not count. An
/// empty text has one part, which is empty.
std::vector<std::string> split_list(const std::string& text, char separator);

/// The parts that are not empty: "a, b,,c" has the words a, b and c.
std::vector<std::string> words_in(const std::string& text, char separator = ',');

/// `value` with at most so many significant digits, with a decimal point under every locale.
std::string number_text(double value, int digits = 10);

/// "lr" of the key "optim.lr", and of "lr".
inline std::string last_name(const std::string& key) { return key.substr(key.find('.') + 1); }

/// One text with `separator` between the words.
std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

/// `text` between double quotes, of which two stand for one inside.
std::string in_double_quotes(const std::string& text);

/// "[64, 10]".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Each word on a line of its own.
std::string as_lines(const std::vector<std::string>& words);
/// The lines of a text, the last one with or without an end of line.
std::vector<std::string> lines_in(const std::string& text);

/// Bytes of the character of UTF-8 at the beginning of `text`; 0 = there is none. Neither surrogates nor longer forms
/// than necessary are characters.
std::size_t character_size(std::string_view text);
bool is_utf8(std::string_view text);
/// The number of characters of UTF-8.
std::size_t character_count(std::string_view text);

/// `text` as valid UTF-8: each byte that is no part of it becomes "\xE9", for example.
std::string utf8_text(const std::string& text);

/// The same, but different texts remain different: the backslash of "\x" in `text` becomes "\x5C". For names.
std::string utf8_name(const std::string& text);

/// The message of an exception without the stack of LibTorch; with TORCH_SHOW_CPP_STACKTRACES=1 in the environment all
/// of it, as in PyTorch.
std::string message_of(const std::exception& error);

enum class Align { left, right };

/// Columns as wide as their widest cell, two blanks apart.
class TextTable {
 public:
  /// @param columns  the alignment of the columns; further columns have that of the last one
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool is_empty() const noexcept { return rows_.empty(); }
  /// A line for each row, without blanks at its end.
  std::string text() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep
