// SPDX-License-Identifier: BSD-3-Clause
// Crops, padding, flips and affine transforms of images, exactly as Pillow and torchvision. Each function changes an
// image of any number of channels in place; `spare` is memory for it.
#pragma once

#include <lockstep/data/image.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// The filters of Pillow, as they are named there.
enum class ResizeFilter { nearest, box, bilinear, hamming, bicubic, lanczos };

/// nearest, box, bilinear, hamming, bicubic, lanczos.
const std::vector<std::string>& filter_names();
/// The filters of affine transforms: nearest, bilinear, bicubic.
const std::vector<std::string>& affine_filter_names();
/// @throws std::out_of_range  the name is unknown
ResizeFilter filter_named(const std::string& name);

/// Height x width, for messages.
inline std::string size_text(ImageSize size) {
  return std::to_string(size.height) + " x " + std::to_string(size.width);
}

/// A color, one byte per channel.
using Color = std::array<std::uint8_t, 3>;

/// @param box  lies in the image
void crop(Image& image, const Box& box, Image& spare);
void flip_horizontally(Image& image);
void flip_vertically(Image& image);
/// Turns and mirrors an image as an EXIF orientation in [1, 8] states.
void apply_orientation(Image& image, int orientation, Image& spare);

enum class PadMode { constant, edge, reflect, symmetric };

/// constant, edge, reflect, symmetric.
const std::vector<std::string>& pad_mode_names();
/// @throws std::out_of_range  the name is unknown
PadMode pad_mode(const std::string& name);

struct Padding {
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
};

/// @param fill  used with PadMode::constant only
void pad(Image& image, const Padding& padding, PadMode mode, const Color& fill, Image& spare);

/// The box of a centered crop; its offset is rounded half to even. It exceeds an image that is smaller.
Box center_box(ImageSize image, ImageSize crop);
/// Crops, and pads where the box exceeds the image.
void center_crop(Image& image, ImageSize size, const Color& fill, Image& spare);

/// (a, b, c, d, e, f): output pixel (x, y) takes the input at (a x + b y + c, d x + e y + f), at centers of pixels.
using AffineMatrix = std::array<double, 6>;

/// @param filter  nearest, bilinear or bicubic
/// @param fill    color outside the input
void affine(Image& image, const AffineMatrix& matrix, ResizeFilter filter, const Color& fill, Image& spare);
/// Rotates about the center, counter-clockwise.
void rotate(Image& image, double degrees, ResizeFilter filter, const Color& fill, Image& spare);

struct AffineParameters {
  double degrees = 0;      ///< counter-clockwise in an image with y upward; clockwise here, as in torchvision
  double translate_x = 0;  ///< pixels
  double translate_y = 0;
  double scale = 1;
  double shear_x = 0;  ///< degrees
  double shear_y = 0;
};
/// The matrix of torchvision's `affine` about a center.
AffineMatrix affine_matrix(const AffineParameters& parameters, double center_x, double center_y);

}  // namespace lockstep::data
