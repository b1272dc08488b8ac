// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// `text` without spaces, tabs and line ends at its beginning and end.
std::string trimmed(const std::string& text);

/// The parts of `text` between `separator`s, trimmed. A separator inside parentheses does not count. An empty text has
/// one part, which is empty.
std::vector<std::string> split_list(const std::string& text, char separator);

/// The parts that are not empty: "a, b,,c" has the words a, b and c.
std::vector<std::string> words_in(const std::string& text, char separator = ',');

/// `value` with at most so many significant digits, with a decimal point under every locale.
std::string number_text(double value, int digits = 10);

/// One text with `separator` between the words.
std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

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

}  // namespace lockstep
