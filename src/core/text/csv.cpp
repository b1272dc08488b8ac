// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/csv.hpp"

#include <utility>

namespace lockstep {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string in_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_field(const std::string& text) {
  return text.find_first_of(",\"\r\n") == std::string::npos ? text : in_quotes(text);
}

}  // namespace

std::string csv_record(const std::vector<std::string>& fields) {
  std::string record;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) record += ',';
    record += csv_field(field);
  }
  return record + "\n";
}

std::string csv_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) {
    if (&text != &texts.front()) list += ';';
    list += text.find_first_of(";\"") == std::string::npos ? text : in_quotes(text);
  }
  return list;
}

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
