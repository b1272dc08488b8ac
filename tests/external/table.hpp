// SPDX-License-Identifier: BSD-3-Clause
// A source of tables: a text file with the names of the columns in the first line and numbers in all others, separated
// by commas. One column is the target, the others are the inputs. Every fifth row is for validation.
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace tables {

using namespace lockstep;

/// Rows of a table in memory. The task is a regression, and a sample is [columns - 1] numbers.
class NumberTable : public data::Dataset {
 public:
  /// @param inputs   [rows, inputs] float32
  /// @param targets  [rows, 1] float32
  NumberTable(at::Tensor inputs, at::Tensor targets, std::uint64_t digest)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), digest_(digest) {}

  std::int64_t size() const override { return inputs_.size(0); }
  Task task() const override { return {.sample_shape = {inputs_.size(1)}, .classes = 1, .kind = TaskKind::regression}; }
  std::uint64_t digest() const override { return digest_; }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    std::vector<std::int64_t> rows;
    for (const batch::Draw& draw : draws) rows.push_back(draw.index);
    const at::Tensor index = torch::tensor(rows);
    return {inputs_.index_select(0, index), targets_.index_select(0, index)};
  }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  std::uint64_t digest_;
};

inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

inline float number_of(const std::string& cell, const std::string& place) {
  float value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) {
    throw DataError(place + ": '" + cell + "' is not a number; correct the cell or remove the line");
  }
  return value;
}

/// Opens `data.table`; `data.column` names the target.
inline data::Splits open_table(const Section& section) {
  const std::string& path = section.text("table");
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw DataError("data.table: '" + path + "' cannot be read, or is empty");
  const std::vector<std::string> names = cells_of(line);
  const auto column = std::find(names.begin(), names.end(), section.text("column"));
  if (names.size() < 2 || column == names.end()) {
    throw ConfigError(section.cite("column") + ": the table '" + path + "' has no column of this name beside others");
  }
  const auto target = static_cast<std::size_t>(column - names.begin());
  std::vector<float> inputs[2], targets[2];  // both for training and for validation
  std::uint64_t digest = 14695981039346656037U;
  for (std::size_t row = 0; std::getline(file, line); ++row) {
    for (const char letter : line) digest = (digest ^ static_cast<unsigned char>(letter)) * 1099511628211U;
    const std::string place = path + ": line " + std::to_string(row + 2);
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != names.size()) {
      throw DataError(place + " has " + std::to_string(cells.size()) + " cells instead of " +
                      std::to_string(names.size()) + "; complete or remove it");
    }
    const std::size_t split = row % 5 == 4 ? 1 : 0;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      (i == target ? targets : inputs)[split].push_back(number_of(cells[i], place + ", column " + names[i]));
    }
  }
  const auto split = [&](std::size_t i) {
    const auto rows = static_cast<std::int64_t>(targets[i].size());
    return std::make_shared<NumberTable>(torch::tensor(inputs[i]).view({rows, -1}),
                                         torch::tensor(targets[i]).view({rows, 1}), digest + i);
  };
  if (targets[1].empty()) throw DataError(path + ": there are fewer than five rows; add more");
  return {.train = split(0), .val = split(1)};
}

}  // namespace tables
