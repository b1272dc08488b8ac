// SPDX-License-Identifier: BSD-3-Clause
#include "core/csv.hpp"

#include <utility>

namespace lockstep {

namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
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

std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_doubled = c == '"' && i + 1 < text.size() && text[i + 1] == '"';
    if (is_quoted && is_doubled) {
      fields.back() += text[++i];
    } else if (c == '"' && (is_quoted || fields.back().empty())) {
      is_quoted = !is_quoted;
    } else if (is_quoted || (c != ',' && c != '\n')) {
      fields.back() += c;
    } else if (c == ',') {
      fields.emplace_back();
    } else {
      if (fields.back().ends_with('\r')) fields.back().pop_back();
      records.push_back(std::exchange(fields, std::vector<std::string>(1)));
    }
  }
  return records;
}

}  // namespace lockstep
