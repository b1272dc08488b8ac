// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/class_numbers.hpp"

#include <cmath>
#include <iterator>
#include <numeric>

namespace lockstep::engine {

std::string class_name(const std::vector<std::string>& names, std::int64_t c) {
  return c >= 0 && c < std::ssize(names) ? names[static_cast<std::size_t>(c)] : std::to_string(c);
}

std::vector<std::pair<std::string, double>> class_numbers(const Table& table, const std::vector<std::string>& names,
                                                          std::size_t classes) {
  const bool is_confusion = table.name == "confusion" && table.rows() == classes;
  if (classes == 0 || table.columns != classes || (table.rows() != 1 && !is_confusion)) return {};
  std::vector<std::pair<std::string, double>> numbers;
  for (std::size_t c = 0; c < classes; ++c) {
    double value = table.values[c];
    if (is_confusion) {
      const auto row = table.values.begin() + static_cast<std::ptrdiff_t>(c * classes);
      value =
          row[static_cast<std::ptrdiff_t>(c)] / std::accumulate(row, row + static_cast<std::ptrdiff_t>(classes), 0.0);
    }
    if (!std::isfinite(value)) continue;
    const std::string of_class = names.size() == classes ? names[c] : std::to_string(c);
    numbers.emplace_back((is_confusion ? "accuracy" : table.name) + "/" + of_class, value);
  }
  return numbers;
}

}  // namespace lockstep::engine
