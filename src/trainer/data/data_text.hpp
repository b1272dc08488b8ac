// SPDX-License-Identifier: BSD-3-Clause
// What `trainer data` prints, as text and as JSON.
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/transform.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/data_speed.hpp"
#include "trainer/data/image_survey.hpp"

namespace lockstep::trainer {

struct DataReport {
  std::string source;
  std::vector<std::string> class_names = {};
  std::vector<ImageSurvey> splits = {};
  bool is_decoded = false;  ///< all images were decoded
  std::vector<Duplicate> duplicates = {};
  std::vector<std::pair<std::string, std::string>> duplicate_names = {};
  std::optional<data::ChannelStatistics> statistics = {};  ///< statistics of the training images
};

std::string report_text(const DataReport& report);
std::string report_json(const DataReport& report);

std::string speeds_text(const std::vector<LoadingSpeed>& speeds);
std::string speeds_json(const std::vector<LoadingSpeed>& speeds);

/// The names, stages and options of transforms.
std::string transforms_text(const std::vector<data::TransformRow>& rows);

/// A data set without image files.
struct SamplesReport {
  std::string source;
  std::vector<std::pair<std::string, std::shared_ptr<const data::Dataset>>> splits = {};  ///< null = it does not exist
  std::string text_path = {};  ///< the text file of characters; "" = tokens are shown as numbers
};

std::string samples_text(const SamplesReport& report);
std::string samples_json(const SamplesReport& report);

}  // namespace lockstep::trainer
