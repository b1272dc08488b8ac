// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

#include "data/transforms/transforms.hpp"

namespace lockstep::data {

namespace {

constexpr int kBoxAttempts = 10;

int rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

BoxAttempt draw_attempt(random::Sequence& random, RealRange area, RealRange ratio) {
  const float area_fraction = uniform_float(random, area);
  const RealRange logs = {std::log(static_cast<float>(ratio[0])), std::log(static_cast<float>(ratio[1]))};
  return {area_fraction, uniform_float(random, logs)};
}

Box place_box(random::Sequence& random, ImageSize image, ImageSize box) {
  const auto below = [&random](int bound) { return static_cast<int>(random.below(static_cast<std::uint64_t>(bound))); };
  const int top = below(image.height - box.height + 1);
  const int left = below(image.width - box.width + 1);
  return {top, left, box.height, box.width};
}

double area_of(ImageSize image) { return static_cast<double>(image.height) * image.width; }

}  // namespace

float uniform_float(random::Sequence& random, RealRange range) {
  return static_cast<float>(random.uniform(range[0], range[1]));
}

std::optional<ImageSize> resized_crop_size(ImageSize image, BoxAttempt attempt) {
  const double area = area_of(image) * static_cast<double>(attempt.area_fraction);
  const double ratio = std::exp(attempt.log_ratio);
  const ImageSize box{rounded(std::sqrt(area / ratio)), rounded(std::sqrt(area * ratio))};
  const bool fits = box.width > 0 && box.width <= image.width && box.height > 0 && box.height <= image.height;
  return fits ? std::optional(box) : std::nullopt;
}

Box central_box(ImageSize image, RealRange ratio) {
  const auto [min_ratio, max_ratio] = std::minmax(ratio[0], ratio[1]);
  const double own = static_cast<double>(image.width) / image.height;
  ImageSize box = image;
  if (own < min_ratio) {
    box.height = std::clamp(rounded(image.width / min_ratio), 1, image.height);
  } else if (own > max_ratio) {
    box.width = std::clamp(rounded(image.height * max_ratio), 1, image.width);
  }
  return {(image.height - box.height) / 2, (image.width - box.width) / 2, box.height, box.width};
}

Box draw_resized_crop(random::Sequence& random, ImageSize image, RealRange area, RealRange ratio) {
  for (int i = 0; i < kBoxAttempts; ++i) {
    const auto box = resized_crop_size(image, draw_attempt(random, area, ratio));
    if (box) return place_box(random, image, *box);
  }
  return central_box(image, ratio);
}

std::optional<ImageSize> erasing_size(ImageSize image, BoxAttempt attempt, int count) {
  const double area = area_of(image) * static_cast<double>(attempt.area_fraction) / count;
  const double ratio = std::exp(attempt.log_ratio);
  const ImageSize box{rounded(std::sqrt(area * ratio)), rounded(std::sqrt(area / ratio))};
  return box.height < image.height && box.width < image.width ? std::optional(box) : std::nullopt;
}

std::optional<Box> draw_erasing(random::Sequence& random, ImageSize image, RealRange area, RealRange ratio, int count) {
  for (int i = 0; i < kBoxAttempts; ++i) {
    const auto box = erasing_size(image, draw_attempt(random, area, ratio), count);
    if (box) return place_box(random, image, *box);
  }
  return std::nullopt;
}

KeySpec size_key(const std::string& help) {
  return keys::integers("size", "", help + " One number for both sides, or height,width", 1, 65535);
}

KeySpec probability_key(const std::string& default_value) {
  return keys::real("p", default_value, "Probability that the transform is applied", 0, 1);
}

KeySpec filter_key(const std::string& default_value, const std::vector<std::string>& names) {
  return keys::choice("filter", default_value, "Interpolation", names);
}

KeySpec fill_key() {
  return keys::integers("fill", "0", "Color outside the image, one number or red,green,blue", 0, 255);
}

ImageSize square_size(const Section& options) {
  const std::vector<std::int64_t> numbers = options.integers("size");
  if (numbers.empty()) throw ConfigError("size is missing; add size=224, for example");
  if (numbers.size() > 2) throw ConfigError("size has more than two numbers; use one, or height,width");
  return {static_cast<int>(numbers.front()), static_cast<int>(numbers.back())};
}

RealRange range_option(const Section& options, const std::string& key) {
  const std::vector<double> numbers = options.reals(key);
  if (numbers.size() != 2 || numbers[0] > numbers[1]) {
    throw ConfigError(key + " is not a range of two numbers; use " + key + "=low,high");
  }
  return {numbers[0], numbers[1]};
}

RealRange symmetric_option(const Section& options, const std::string& key) {
  const std::vector<double> numbers = options.reals(key);
  if (numbers.size() != 1) return range_option(options, key);
  if (numbers[0] < 0) throw ConfigError(key + " is negative; a single number x stands for the range -x,x");
  return {-numbers[0], numbers[0]};
}

Color fill_option(const Section& options) {
  const std::vector<std::int64_t> numbers = options.integers("fill");
  if (numbers.size() != 1 && numbers.size() != 3) throw ConfigError("fill does not have one or three numbers");
  Color color{};
  for (std::size_t c = 0; c < 3; ++c) color[c] = static_cast<std::uint8_t>(numbers[numbers.size() == 1 ? 0 : c]);
  return color;
}

ResizeFilter filter_option(const Section& options) { return filter_named(options.text("filter")); }

std::optional<RealRange> jitter_range(const std::vector<double>& option, double center, RealRange limits) {
  if (option.empty() || option.size() > 2) throw ConfigError("use one number, or a range low,high");
  RealRange range = {option.front(), option.back()};
  if (option.size() == 1) range = {std::max(center - option[0], limits[0]), center + option[0]};
  if (range[0] > range[1] || range[0] < limits[0] || range[1] > limits[1]) {
    throw ConfigError("the range is empty or exceeds the limits");
  }
  if (range[0] == center && range[1] == center) return std::nullopt;
  return range;
}

const std::vector<TransformRow>& builtin_transforms() {
  static const std::vector<TransformRow> rows = [] {
    std::vector<TransformRow> all;
    for (auto* part : {crop_transforms, geometry_transforms, color_transforms, policy_transforms, tensor_transforms}) {
      for (TransformRow& row : part()) all.push_back(std::move(row));
    }
    return all;
  }();
  return rows;
}

}  // namespace lockstep::data
