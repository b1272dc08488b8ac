// SPDX-License-Identifier: BSD-3-Clause
// The parts of the table of transforms, and what their options share.
#pragma once

#include <lockstep/data/image.hpp>
#include <lockstep/data/transform.hpp>
#include <lockstep/random/random.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/image/geometry.hpp"

namespace lockstep::data {

/// A range of numbers, [first, last].
using RealRange = std::array<double, 2>;

// Random boxes, as torchvision draws them.

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

std::vector<TransformRow> crop_transforms();
std::vector<TransformRow> geometry_transforms();
std::vector<TransformRow> color_transforms();
std::vector<TransformRow> policy_transforms();
std::vector<TransformRow> tensor_transforms();

/// The color of mask pixels from outside the image.
inline constexpr Color kIgnoredColor = {kIgnoredPixel, kIgnoredPixel, kIgnoredPixel};

/// Applies a transform to the whole input, and cuts out a part of the output: PartTransform::apply_part where no less
/// than the whole input is there.
void apply_whole(const PixelTransform& transform, Patch& patch, const Box& part, const Parameters& drawn,
                 Workspace& workspace);

/// TransformRow::make for a transform that is constructed from its options.
template <class T>
auto make_from_options() {
  return [](const Section& options, const TransformContext&) -> std::unique_ptr<Transform> {
    return std::make_unique<T>(options);
  };
}

// Options that several transforms have.
KeySpec size_key(const std::string& help);
KeySpec probability_key(const std::string& default_value);
KeySpec filter_key(const std::string& default_value, const std::vector<std::string>& names);
KeySpec fill_key();

/// The option `size`: one number for both sides, or height,width. @throws ConfigError  not given, or other than 1 or 2
ImageSize square_size(const Section& options);
/// An option with two numbers, low,high. @throws ConfigError  not two numbers, or not in order
RealRange range_option(const Section& options, const std::string& key);
/// An option `x` that stands for [-x, x], or a range low,high.
RealRange symmetric_option(const Section& options, const std::string& key);
/// The option `fill`: one number for all channels, or one per channel. @throws ConfigError  another count
Color fill_option(const Section& options);
ResizeFilter filter_option(const Section& options);

/// Whether an event of this probability happens.
inline bool coin(random::Sequence& random, double probability) { return random.uniform() < probability; }

/// The range of a color_jitter option: x stands for [max(0, center - x), center + x]; nullopt = no change.
/// @param limits  of the range
std::optional<RealRange> jitter_range(const std::vector<double>& option, double center, RealRange limits);

/// byte / 255 for each channel.
ByteTable fraction_table(int channels);

/// Mean and deviation of a `normalize` line. @throws ConfigError  malformed; or `auto` without `measured`
ChannelStatistics normalize_statistics(const Section& options, const std::optional<ChannelStatistics>& measured);

}  // namespace lockstep::data
