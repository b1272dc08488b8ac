// SPDX-License-Identifier: BSD-3-Clause
// Changes of colors, exactly as Pillow and torchvision. Images have 1 or 3 channels.
#pragma once

#include <lockstep/data/image.hpp>

#include <array>
#include <cstdint>

namespace lockstep::data {

/// Converts between gray and RGB: gray is repeated, and RGB becomes its luminance.
void set_channels(Image& image, int channels, Image& spare);
/// Replaces all channels by the luminance, (19595 R + 38470 G + 7471 B + 32768) >> 16.
void to_grayscale(Image& image);

// Factors of the four functions below: 0 = without it, 1 = unchanged.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor, Image& spare);
/// Shifts the hue. @param factor  in [-0.5, 0.5], as a part of the color circle. No effect on gray images
void adjust_hue(Image& image, double factor);

/// Keeps the upper bits of each byte. @param bits  in [0, 8]; 0 = black
void posterize(Image& image, int bits);
/// Inverts the bytes that are at least `threshold`.
void solarize(Image& image, double threshold);
/// Adds to the bytes below `threshold`, up to 255.
void solarize_add(Image& image, int add, int threshold = 128);
void invert(Image& image);
/// Stretches the values of each channel to 0 ... 255.
void autocontrast(Image& image);
/// Makes the values of each channel equally frequent.
void equalize(Image& image);

/// The parameters of color_jitter. Kinds: 0 brightness, 1 contrast, 2 saturation, 3 hue.
struct ColorJitter {
  std::array<std::int8_t, 4> order = {0, 1, 2, 3};  ///< order of the kinds
  std::array<bool, 4> uses = {};                    ///< whether each kind is applied
  std::array<double, 4> factors = {};               ///< factor of each kind
};

void apply_jitter(Image& image, const ColorJitter& drawn);

}  // namespace lockstep::data
