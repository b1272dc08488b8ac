// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/table.hpp>
#include <lockstep/data/dataset.hpp>

#include "sources.hpp"

namespace lockstep::data {

namespace {

std::string names_of(const std::vector<Source>& sources) {
  std::string names;
  for (const Source& source : sources) names += (names.empty() ? "" : ", ") + source.name;
  return names;
}

}  // namespace

const std::vector<Source>& builtin_sources() {
  static const std::vector<Source> rows = {digits_source(), idx_source(), text_source(), tokens_source()};
  return rows;
}

Splits open(const Section& data, const std::vector<Source>& sources) {
  return find_row(sources, data.text("name"), data.cite("name")).open(data);
}

KeySpecs data_keys(const std::vector<Source>& sources) {
  const KeySpecs common = {
      {.name = "data.name",
       .type = KeyType::text,
       .default_value = "digits",
       .help = "where samples come from: " + names_of(sources)},
      {.name = "data.path", .type = KeyType::text, .default_value = "", .help = "file or folder that the source reads"},
      {.name = "data.shuffle",
       .type = KeyType::boolean,
       .default_value = "true",
       .help = "draw the training samples of each epoch in a new order"},
      {.name = "data.workers",
       .type = KeyType::integer,
       .default_value = "1",
       .help = "threads per rank that fetch batches ahead; 0: the training thread fetches",
       .min = 0,
       .max = 64},
  };
  return keys_of_rows(common, sources);
}

const std::string& required_path(const Section& data, const std::string& wanted) {
  const std::string& path = data.text("path");
  if (path.empty()) throw ConfigError("data.path is not set; data.name = " + data.text("name") + " needs " + wanted);
  return path;
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw std::out_of_range("sample " + std::to_string(index) + " of a data set of " + std::to_string(size));
    }
  }
}

}  // namespace lockstep::data
