// SPDX-License-Identifier: BSD-3-Clause
#include "data/transforms/random_box.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace lockstep::data
