// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/transforms/pipeline.hpp"

namespace lockstep::trainer {

/// Minimum, median and maximum of a number.
struct Spread {
  double min = 0;
  double median = 0;
  double max = 0;
};

/// An image that cannot be read.
struct BadImage {
  std::string place;  ///< position of its file
  std::string fault;
};

/// Facts about the images of one split. What is not known of a bad image is not counted.
struct ImageSurvey {
  std::string split;
  std::int64_t images = 0;
  std::uint64_t bytes = 0;                         ///< bytes of the files, or of the stored pixels
  std::vector<std::int64_t> images_of_class = {};  ///< empty if the targets are not classes
  Spread height = {};
  Spread width = {};
  Spread aspect = {};  ///< width / height
  std::map<std::string, std::int64_t> formats = {};
  std::map<int, std::int64_t> channels = {};
  std::map<int, std::int64_t> orientations = {};  ///< EXIF, 1 to 8
  std::vector<std::uint64_t> digests = {};        ///< digests of the bytes of each image; 0 = it cannot be read
  std::vector<BadImage> bad = {};                 ///< bad images in the order of the split
};

/// @param how      limits of the decoding
/// @param decodes  decode all images; otherwise, only their headers are read
ImageSurvey survey_images(const data::ImageStore& store, const std::string& split, const data::PipelineOptions& how,
                          bool decodes);

/// Two images with the same bytes.
struct Duplicate {
  std::string first_split;
  std::int64_t first = 0;
  std::string second_split;
  std::int64_t second = 0;
};

/// The images of each split that have the same bytes as one before them, in the order of the splits.
std::vector<Duplicate> duplicates_of(const std::vector<ImageSurvey>& splits);

}  // namespace lockstep::trainer
