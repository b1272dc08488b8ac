// SPDX-License-Identifier: BSD-3-Clause
// How names, sizes and tables are printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ckpt {

/// Text from a file, safe on a terminal: control characters, characters that change the direction of writing, invalid
/// UTF-8 and the backslash become `\n`, `\x1B`, `\u202E`, `\\`.
std::string escaped(std::string_view text);

/// "999 B", "1.50 MiB".
std::string human_bytes(std::uint64_t bytes);
/// "1.50 MiB (1572864 bytes)".
std::string exact_bytes(std::uint64_t bytes);
/// "[64, 10]".
std::string shape_text(const std::vector<std::int64_t>& shape);
/// Six significant digits: "0.125", "1e-09", "nan".
std::string number_text(double value);

enum class Align { left, right };

/// Columns as wide as their widest cell, two blanks apart.
class TextTable {
 public:
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  /// @param cells  one for each column
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool is_empty() const noexcept { return rows_.empty(); }
  /// A line for each row, without blanks at its end.
  std::string text() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::ckpt
