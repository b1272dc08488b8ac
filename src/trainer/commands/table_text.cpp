// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/commands/table_text.hpp"

#include "core/text/text.hpp"

namespace lockstep::trainer {

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  TextTable table({Align::left, Align::right});
  for (const auto& row : rows) table.add(row);
  std::string text = table.text();
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

std::string brief(double value) { return number_text(value, 6); }

}  // namespace lockstep::trainer
