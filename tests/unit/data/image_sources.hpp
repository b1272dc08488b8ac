// SPDX-License-Identifier: BSD-3-Clause
// A folder of images, and helpers for tests of sources of images.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "data/stores/image_splits.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::data::image_sources {

using ImageNames = std::vector<std::string>;
using Labels = std::vector<std::int64_t>;
using Values = std::map<std::string, std::string>;

inline ImageSplits stores(const Values& values) { return open_images(section(values)); }

inline std::string refusal(const Values& values) {
  return sentence_of<DataError>([&] { open_with(values); });
}

inline bool has_note(const std::vector<std::string>& notes, const std::string& text) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

/// Two classes, b with two images and a with one, of 4 x 4 pixels.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    write_file(folder, "train/b/2.ppm", ppm(4, 4, 20, 20, 20));
    write_file(folder, "train/b/10.ppm", ppm(4, 4, 10, 10, 10));
    write_file(folder, "train/a/x.ppm", ppm(4, 4, 255, 0, 51));
    write_file(folder, "train/readme.txt", "");
  }

  Values values(const Values& more = {}) const {
    Values all = {{"name", "folder"}, {"path", folder.path()}, {"cache", "off"}};
    for (const auto& [key, value] : more) all[key] = value;
    return all;
  }

  TemporaryFolder folder;
};

/// Two classes of two images each.
inline Section two_classes(const TemporaryFolder& two, const std::map<std::string, std::string>& more = {}) {
  for (const char* name : {"a/1.ppm", "a/2.ppm", "b/1.ppm", "b/2.ppm"}) write_file(two, name, ppm(2, 2, 9, 8, 7));
  std::map<std::string, std::string> values = {
      {"name", "folder"}, {"path", two.path()}, {"cache", "off"}, {"val_fraction", "0"}, {"transform", "to_float"}};
  for (const auto& [key, value] : more) values[key] = value;
  return section(values);
}

}  // namespace lockstep::data::image_sources
