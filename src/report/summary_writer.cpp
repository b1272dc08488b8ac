// SPDX-License-Identifier: BSD-3-Clause
#include "report/summary_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <sstream>
#include <utility>

#include "core/text.hpp"
#include "report/run_files.hpp"
#include "report/text_file.hpp"

namespace lockstep::report {

namespace {

using Cells = std::vector<std::string>;

std::string cell_of(const NamedValue& value) {
  if (const auto* const number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* const count = std::get_if<std::int64_t>(&value)) return std::to_string(*count);
  std::string text = std::get<std::string>(value);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ',' || c == '"' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

Cells split(const std::string& line) {
  Cells cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace

SummaryWriter::SummaryWriter(std::string path) : path_(std::move(path)) {
  std::istringstream lines(whole_lines(read_text(path_).value_or("")));
  std::string line;
  if (std::getline(lines, line)) columns_ = split(line);
  while (std::getline(lines, line)) {
    rows_.push_back(split(line));
    rows_.back().resize(columns_.size());
  }
}

void SummaryWriter::write(const Record& record) {
  Cells cells(columns_.size());
  for (const auto& [name, value] : record.values) {
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    const auto column = static_cast<std::size_t>(found - columns_.begin());
    if (found == columns_.end()) {
      columns_.push_back(name);
      cells.emplace_back();
    }
    cells[column] = cell_of(value);
  }
  rows_.push_back(std::move(cells));
  for (Cells& earlier : rows_) earlier.resize(columns_.size());
  save();
}

void SummaryWriter::truncate_after_step(std::int64_t step) {
  const auto column = static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), "step") - columns_.begin());
  if (column == columns_.size()) return;
  std::erase_if(rows_, [column, step](const Cells& row) {
    const std::string& text = row[column];
    std::int64_t of_row = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), of_row);
    return result.ec == std::errc{} && of_row > step;
  });
  save();
}

void SummaryWriter::save() const {
  std::string text = joined(columns_, ",") + "\n";
  for (const Cells& row : rows_) text += joined(row, ",") + "\n";
  write_text(path_, text);
}

}  // namespace lockstep::report
