// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/class_names.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>

#include "core/text/plain_text.hpp"
#include "core/text/text.hpp"
#include "data/source/mapped_file.hpp"

namespace lockstep::data {

std::vector<std::string> read_class_names(const std::string& path) {
  const MappedFile file(path, "data.class_names");
  std::vector<std::string> names =
      plain_lines({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  file.check();
  for (std::string& name : names) name = utf8_name(name);
  const auto empty = std::find(names.begin(), names.end(), "");
  if (empty != names.end()) {
    throw DataError(path, "line " + std::to_string(empty - names.begin() + 1) +
                              " is empty; the file must contain one class name per line");
  }
  if (names.empty()) throw DataError(path, "contains no class names; it must contain one per line");
  return names;
}

}  // namespace lockstep::data
