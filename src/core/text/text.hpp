// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
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

/// `text` as valid UTF-8: each byte that is no part of it becomes "\xE9", for example.
std::string utf8_text(const std::string& text);

/// The same, but different texts remain different: the backslash of "\x" in `text` becomes "\x5C". For names.
std::string utf8_name(const std::string& text);

}  // namespace lockstep
