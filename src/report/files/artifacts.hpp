// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plot/timeline_chart.hpp"
#include "report/files/image.hpp"

// The tables and images of a run, and where the time of its steps goes.
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
  std::optional<ColorScale> scale = {};
};

/// @param png  the file that png_of made of `image`
Base64Image base64_image(const Picture& image, const EncodedImage& png);

struct Artifacts {
  std::vector<Table> tables;
  std::vector<Base64Image> pictures;
  std::map<std::string, std::string> units = {};  ///< units of values of metrics.jsonl, by their names
};

/// The content of what the files of ArtifactsWriter hold; nothing where there are none.
/// @throws DataError  one is damaged
Artifacts read_artifacts(const std::string& folder);

/// Keeps tables and images in a run's folder, in tables.json and pictures.json: of each group (names that are alike up
/// to the last '/') those of the latest step. Keeps units of metrics in units.json. The files are replaced as a whole.
///
/// For one rank only (the root).
class ArtifactsWriter {
 public:
  /// Continues with what is there, as far as it can be read.
  explicit ArtifactsWriter(std::string folder);

  /// Takes the place of one of the same name, and of what the group has of other steps.
  void put(Table table);
  void put(Base64Image picture);
  /// @param units  by names of values of records; take the place of those of the same names
  void put_units(const std::vector<std::pair<std::string, std::string>>& units);
  /// @throws ConfigError  a file cannot be written; the message has the reason
  void save();

  /// Drops what belongs to steps beyond `step`.
  void truncate_after_step(std::int64_t step);

 private:
  std::string folder_;
  Artifacts held_;
  bool has_new_tables_ = false;
  bool has_new_pictures_ = false;
  bool has_new_units_ = false;
};

/// The places where the time of a median step goes, for the page of a run.
struct StepTimes {
  struct TimedPart {
    std::string name;  ///< "compute", "wait", ...
    double milliseconds;
  };
  std::string sentence;                       ///< sentence: what bounds the step
  std::vector<std::vector<TimedPart>> ranks;  ///< the parts of each rank's step, by rank; the same names everywhere
  plot::TimelineChart timeline;               ///< timeline of the slowest rank
};

/// Replaces <folder>/ddp.json.
/// @throws ConfigError  with the reason
void write_step_times(const std::string& folder, const StepTimes& times);

/// The times that write_step_times wrote; none where the file does not exist.
/// @throws DataError  the file is damaged
std::optional<StepTimes> read_step_times(const std::string& folder);

}  // namespace lockstep::report
