// SPDX-License-Identifier: BSD-3-Clause
#include "data/transforms/evaluation_lines.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/text/table.hpp"

namespace lockstep::data {

namespace {

using Line = ChosenRow<TransformRow>;

/// An option as it was written; "" if it has its default.
std::string written_option(const Section& options, const std::string& key) {
  return options.is_default(key) ? "" : "," + key + "=" + options.values().at(key).texts.front();
}

/// resize and center_crop for crops of this size.
std::vector<std::string> resized_center(const std::vector<std::int64_t>& size, const Section& options) {
  const auto long_side = static_cast<double>(std::ranges::max(size));
  std::string crop = "center_crop,size=" + std::to_string(size.front());
  if (size.size() > 1) crop += "," + std::to_string(size.back());
  return {"resize,size=" + std::to_string(std::lround(long_side * 256 / 224)) + written_option(options, "filter"),
          crop};
}

bool keeps_size(const Line& line) {
  const std::unique_ptr<Transform> transform =
      line.row->make(line.options, {.channels = 3, .statistics = imagenet_statistics()});
  const auto* const pixels = dynamic_cast<const PixelTransform*>(transform.get());
  constexpr ImageSize kAnySize{.height = 96, .width = 64};
  return pixels != nullptr && pixels->fixed_size(kAnySize) == kAnySize;
}

/// The lines of evaluations for a random line of the training.
std::vector<std::string> lines_for_random(const Line& line, const std::string& place) {
  const std::string& name = line.row->name;
  if (name == "random_resized_crop" || name == "multi_crop") {
    const std::vector<std::int64_t> sizes = line.options.integers(name == "multi_crop" ? "sizes" : "size");
    if (sizes.empty()) throw ConfigError(place + ": size is missing; add size=224, for example");
    return resized_center(name == "multi_crop" ? std::vector{sizes.front()} : sizes, line.options);
  }
  if (name == "random_crop") return {"center_crop" + written_option(line.options, "size")};
  if (line.row->stage == TransformStage::tensor || keeps_size(line)) return {};
  throw ConfigError(place + ": " + name +
                    " changes the size of images at random, so that the transforms of evaluated " +
                    "images cannot be derived from it; set data.val_transform");
}

}  // namespace

std::vector<std::string> evaluation_lines(const std::vector<std::string>& training,
                                          const std::vector<TransformRow>& rows, const std::string& key) {
  std::vector<std::string> lines;
  for (const std::string& text : training) {
    const std::string place = key + " '" + text + "'";
    const Line line = choose_row(rows, text, {}, key, place);
    if (!line.row->is_random) {
      lines.push_back(text);
    } else {
      for (std::string& added : lines_for_random(line, place)) lines.push_back(std::move(added));
    }
  }
  return lines;
}

}  // namespace lockstep::data
