// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace lockstep {

std::string trimmed(const std::string& text) {
  const char* const blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == separator) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

std::vector<std::string> split_list(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  // A bracket without its partner is a character like others, as in a regular expression that is malformed.
  const bool has_brackets = std::ranges::count(text, '[') == std::ranges::count(text, ']');
  int depth = 0;
  for (const char letter : text) {
    const bool is_open = letter == '(' || (has_brackets && letter == '[');
    const bool is_close = letter == ')' || (has_brackets && letter == ']');
    depth += is_open ? 1 : is_close ? -1 : 0;
    if (letter == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

std::vector<std::string> words_in(const std::string& text, char separator) {
  std::vector<std::string> words = split_list(text, separator);
  std::erase(words, "");
  return words;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> words;
  for (const std::int64_t dimension : shape) words.push_back(std::to_string(dimension));
  return "[" + joined(words) + "]";
}

std::string as_lines(const std::vector<std::string>& words) {
  std::string lines;
  for (const std::string& word : words) lines += word + "\n";
  return lines;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

std::string number_text(double value, int digits) {
  std::array<char, 64> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
  return {text.data(), written.ptr};
}

std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0);
  };
  const unsigned first = byte(0);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool is_too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_no_character = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return is_too_long || is_no_character ? 0 : size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::size_t character_count(std::string_view text) {
  const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_first_byte));
}

std::string utf8_text(const std::string& text) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string result;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t size = character_size(std::string_view(text).substr(position));
    if (size > 0) {
      result.append(text, position, size);
    } else {
      const auto byte = static_cast<unsigned char>(text[position]);
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    position += size > 0 ? size : 1;
  }
  return result;
}

std::string utf8_name(const std::string& text) {
  std::string escaped;
  for (std::size_t position = 0; position < text.size(); ++position)
    escaped += text.compare(position, 2, "\\x") == 0 ? "\\x5C" : text.substr(position, 1);
  return utf8_text(escaped);
}

std::string in_double_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != &words.front()) text += separator;
    text += word;
  }
  return text;
}

std::string message_of(const std::exception& error) {
  std::string text = error.what();
  const char* const shows = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  if (shows != nullptr && std::string_view(shows) == "1") return text;
  return text.substr(0, text.find("\nException raised from "));
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], character_count(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - character_count(row[i]), ' ');
      const bool is_left = columns_[std::min(i, columns_.size() - 1)] == Align::left;
      line += (i == 0 ? "" : "  ") + (is_left ? row[i] + blanks : blanks + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep
