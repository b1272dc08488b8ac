// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/summary_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "core/text/csv.hpp"
#include "report/files/run_files.hpp"
#include "report/files/text_file.hpp"

namespace lockstep::report {

namespace {

using Cells = std::vector<std::string>;

std::string cell_of(const NamedValue& value) {
  if (const auto* const number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* const count = std::get_if<std::int64_t>(&value)) return std::to_string(*count);
  return std::get<std::string>(value);
}

}  // namespace

SummaryWriter::SummaryWriter(std::string path) : path_(std::move(path)) {
  rows_ = parse_csv(read_text(path_).value_or(""));
  if (rows_.empty()) return;
  columns_ = std::move(rows_.front());
  rows_.erase(rows_.begin());
  for (Cells& row : rows_) row.resize(columns_.size());
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
  std::string text = csv_record(columns_);
  for (const Cells& row : rows_) text += csv_record(row);
  write_text(path_, text);
}

}  // namespace lockstep::report
