// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

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
