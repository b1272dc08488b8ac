// SPDX-License-Identifier: BSD-3-Clause
// Random boxes, as torchvision draws them.
#pragma once

#include <lockstep/data/image.hpp>
#include <lockstep/random/random.hpp>

#include <array>
#include <optional>

namespace lockstep::data {

/// A range of numbers, [first, last].
using RealRange = std::array<double, 2>;

/// A draw of the area and the shape of a box.
struct BoxAttempt {
  float area_fraction;
  float log_ratio;
};

/// The size of a box for random_resized_crop; nullopt if it does not fit into the image.
std::optional<ImageSize> resized_crop_size(ImageSize image, BoxAttempt attempt);
/// The crop if no attempt fits: the largest central box with a ratio (width / height) in the range.
Box central_box(ImageSize image, RealRange ratio);
/// The box of random_resized_crop: up to ten attempts.
Box draw_resized_crop(random::Sequence& random, ImageSize image, RealRange area, RealRange ratio);

/// The size of a box for random_erasing; nullopt if it does not fit into the image.
/// @param count  the area is divided by this number
std::optional<ImageSize> erasing_size(ImageSize image, BoxAttempt attempt, int count = 1);
/// The box of random_erasing; nullopt if none of ten attempts fits.
std::optional<Box> draw_erasing(random::Sequence& random, ImageSize image, RealRange area, RealRange ratio,
                                int count = 1);

/// A uniform number of a range, rounded to float32.
float uniform_float(random::Sequence& random, RealRange range);

}  // namespace lockstep::data
