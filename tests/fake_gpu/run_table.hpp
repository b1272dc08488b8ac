// SPDX-License-Identifier: BSD-3-Clause
// The rows of runs.txt, which explains them.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/text/parse_value.hpp"
#include "support/folders.hpp"

namespace lockstep::testing {

struct RunRow {
  std::string command;
  std::string name;
  std::string bound;
  std::vector<std::int64_t> ranks;
  std::vector<std::string> words;  ///< KEY=VALUE; the patterns of `without`
  std::string text;                ///< the sentence or the reason
};

inline RunRow run_row(const std::string& line) {
  const std::size_t colon = line.find(" : ");
  RunRow row;
  if (colon != std::string::npos) row.text = line.substr(colon + 3);
  std::istringstream words(line.substr(0, colon));
  std::string ranks;
  words >> row.command;
  if (row.command != "without") words >> row.name >> row.bound >> ranks;
  row.ranks = parse_list(ranks, parse_integer).value_or(std::vector<std::int64_t>());
  for (std::string word; words >> word;) row.words.push_back(word);
  return row;
}

inline std::vector<RunRow> run_rows() {
  std::ifstream file(source_root() / "tests/fake_gpu/runs.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ') {
      lines.back() += line.substr(1);
    } else {
      lines.push_back(line);
    }
  }
  std::vector<RunRow> rows;
  for (const std::string& line : lines) rows.push_back(run_row(line));
  return rows;
}

}  // namespace lockstep::testing
