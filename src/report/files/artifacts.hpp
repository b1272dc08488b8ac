// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "report/files/image.hpp"

// The tables and images of a run.
namespace lockstep::report {

/// An Image as a PNG file in text.
struct Base64Image {
  std::string name;  ///< "val/sample_00"
  std::int64_t step = 0;
  std::string caption = {};
  bool is_wrong = false;  ///< whether the caption shows a wrong prediction
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::string png = {};  ///< the file, in base64
};

/// @param png  the file that png_of made of `image`
Base64Image base64_image(const Picture& image, const EncodedImage& png);

struct Artifacts {
  std::vector<Table> tables;
  std::vector<Base64Image> pictures;
};

/// The content of what the files of ArtifactsWriter hold; nothing where there are none.
/// @throws DataError  one is damaged
Artifacts read_artifacts(const std::string& folder);

/// Keeps tables and images in a run's folder, in tables.json and pictures.json: of each group (names that are alike up
/// to the last '/') those of the latest step. The files are replaced as a whole.
///
/// For one rank only (the root).
class ArtifactsWriter {
 public:
  /// Continues with what is there, as far as it can be read.
  explicit ArtifactsWriter(std::string folder);

  /// Takes the place of one of the same name, and of what the group has of other steps.
  void put(Table table);
  void put(Base64Image picture);
  /// @throws ConfigError  a file cannot be written; the message has the reason
  void save();

  /// Drops what belongs to steps beyond `step`.
  void truncate_after_step(std::int64_t step);

 private:
  std::string folder_;
  Artifacts held_;
  bool has_new_tables_ = false;
  bool has_new_pictures_ = false;
};

}  // namespace lockstep::report
