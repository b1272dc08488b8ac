// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text_table.hpp"

#include <algorithm>

#include "core/text/text.hpp"

namespace lockstep {

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
