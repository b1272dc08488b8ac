// SPDX-License-Identifier: BSD-3-Clause
// Folders of small image files for tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "unit/data/files.hpp"

namespace lockstep::data {

/// A PPM file of one color.
inline std::string ppm(int width, int height, int red, int green, int blue) {
  std::string bytes = "P6 " + std::to_string(width) + " " + std::to_string(height) + " 255\n";
  for (int i = 0; i < width * height; ++i) {
    for (const int value : {red, green, blue}) bytes += static_cast<char>(value);
  }
  return bytes;
}

/// Writes a file and creates the folders above it.
inline void write_file(const TemporaryFolder& folder, const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(folder.path(path)).parent_path());
  folder.write(path, bytes);
}

/// Sets the time of the last change of all folders below `root` to the past, so that lists of them can be cached.
inline void settle(const std::string& root) {
  const auto past = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_directory()) std::filesystem::last_write_time(entry.path(), past);
  }
  std::filesystem::last_write_time(root, past);
}

inline std::vector<std::string> names_in(const ImageStore& store) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < store.size(); ++i) names.push_back(store.name(i));
  return names;
}

inline std::vector<std::int64_t> labels_in(const ImageStore& store) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < store.size(); ++i) labels.push_back(store.target(i).classes.front());
  return labels;
}

}  // namespace lockstep::data
