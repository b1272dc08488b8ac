// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/class_names.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>

#include "core/text.hpp"
#include "data/mapped_file.hpp"

namespace lockstep::data {

std::vector<std::string> read_class_names(const std::string& path) {
  const MappedFile file(path, "data.class_names");
  const std::string text(file.bytes().begin(), file.bytes().end());
  std::vector<std::string> names;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    names.push_back(trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  const auto empty = std::find(names.begin(), names.end(), "");
  if (empty != names.end()) {
    throw DataError(path, "line " + std::to_string(empty - names.begin() + 1) +
                              " is empty; the file must contain one class name per line");
  }
  if (names.empty()) throw DataError(path, "contains no class names; it must contain one per line");
  return names;
}

}  // namespace lockstep::data
