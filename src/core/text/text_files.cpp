// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text_files.hpp"

#include <utility>

#include "core/text/text.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// The texts with `separator` between them; those with any of the characters `special` are quoted.
std::string joined_fields(std::vector<std::string> texts, const char* separator, const char* special) {
  for (std::string& text : texts) {
    if (text.find_first_of(special) != std::string::npos) text = in_double_quotes(text);
  }
  return joined(texts, separator);
}

}  // namespace

std::string plain_text(std::string_view bytes) {
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool is_pair = bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n';
    if (!is_pair) text += bytes[i] == '\r' ? '\n' : bytes[i];
  }
  return text;
}

std::vector<std::string> plain_lines(std::string_view bytes) {
  std::vector<std::string> lines = lines_in(plain_text(bytes));
  for (std::string& line : lines) line = trimmed(line);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string csv_record(const std::vector<std::string>& fields) { return joined_fields(fields, ",", ",\"\r\n") + "\n"; }

std::string csv_list(const std::vector<std::string>& texts) { return joined_fields(texts, ";", ";\""); }

std::vector<std::vector<std::string>> parse_csv(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  bool is_complete = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto is_next = [&](char next) { return i + 1 < text.size() && text[i + 1] == next; };
    is_complete = !is_quoted && (c == '\n' || c == '\r');
    if (is_complete) {
      if (c == '\r' && is_next('\n')) ++i;
      records.push_back(std::exchange(fields, std::vector<std::string>(1)));
    } else if (c == '"' && is_quoted && is_next('"')) {
      fields.back() += text[++i];
    } else if (c == '"' && (is_quoted || fields.back().empty())) {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (!is_complete && !is_quoted) records.push_back(std::move(fields));
  return records;
}

}  // namespace lockstep
