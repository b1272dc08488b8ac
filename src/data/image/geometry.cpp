// SPDX-License-Identifier: BSD-3-Clause
#include "data/image/geometry.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

#include "kernels/pixels.hpp"

namespace lockstep::data {

namespace {

/// Position of a padded pixel in an image of `size` pixels; -1 = none.
int padded_source(int position, int size, PadMode mode) {
  if (position >= 0 && position < size) return position;
  if (mode == PadMode::constant) return -1;
  if (mode == PadMode::edge || size == 1) return std::clamp(position, 0, size - 1);
  const int period = mode == PadMode::reflect ? 2 * (size - 1) : 2 * size;
  const int phase = (position % period + period) % period;
  if (phase < size) return phase;
  return mode == PadMode::reflect ? period - phase : period - 1 - phase;
}

/// round(value / 2), half to even. value / 2 has a fraction of 0 or 1/2.
int half_to_even(int value) { return static_cast<int>(std::nearbyint(value / 2.0)); }

struct Turn {
  bool swaps_axes;
  bool reverses_rows;  ///< refers to the rows of the input
  bool reverses_columns;
};

Turn turn_of(int orientation) {
  switch (orientation) {
    case 2:
      return {false, false, true};
    case 3:
      return {false, true, true};
    case 4:
      return {false, true, false};
    case 5:
      return {true, false, false};
    case 6:
      return {true, true, false};
    case 7:
      return {true, true, true};
    case 8:
      return {true, false, true};
    default:
      return {false, false, false};
  }
}

}  // namespace

void crop(Image& image, const Box& box, Image& spare) {
  if (box == whole(image.size())) return;
  spare.reshape(box.size(), image.channels);
  const std::size_t offset = static_cast<std::size_t>(box.left) * static_cast<std::size_t>(image.channels);
  for (int y = 0; y < box.height; ++y) std::memcpy(spare.row(y), image.row(box.top + y) + offset, spare.stride());
  image.swap(spare);
}

void flip_vertically(Image& image) {
  for (int top = 0, bottom = image.height - 1; top < bottom; ++top, --bottom) {
    std::swap_ranges(image.row(top), image.row(top) + image.stride(), image.row(bottom));
  }
}

void apply_orientation(Image& image, int orientation, Image& spare) {
  const Turn turn = turn_of(orientation);
  const int height = image.height;
  const int width = image.width;
  spare.reshape(turn.swaps_axes ? ImageSize{width, height} : ImageSize{height, width}, image.channels);
  std::uint8_t* out = spare.pixels.data();
  for (int y = 0; y < spare.height; ++y) {
    for (int x = 0; x < spare.width; ++x) {
      const int row = turn.swaps_axes ? x : y;
      const int column = turn.swaps_axes ? y : x;
      const std::uint8_t* from =
          image.row(turn.reverses_rows ? height - 1 - row : row) +
          static_cast<std::ptrdiff_t>(turn.reverses_columns ? width - 1 - column : column) * image.channels;
      for (int c = 0; c < image.channels; ++c) *out++ = from[c];
    }
  }
  image.swap(spare);
}

const std::vector<std::string>& pad_mode_names() {
  static const std::vector<std::string> names = {"constant", "edge", "reflect", "symmetric"};
  return names;
}

PadMode pad_mode(const std::string& name) {
  const auto& names = pad_mode_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::out_of_range("no pad mode " + name);
  return static_cast<PadMode>(found - names.begin());
}

void pad(Image& image, const Padding& padding, PadMode mode, const Color& fill, Image& spare) {
  const int channels = image.channels;
  spare.reshape({image.height + padding.top + padding.bottom, image.width + padding.left + padding.right}, channels);
  for (int y = 0; y < spare.height; ++y) {
    const int row = padded_source(y - padding.top, image.height, mode);
    std::uint8_t* out = spare.row(y);
    for (int x = 0; x < spare.width; ++x, out += channels) {
      const int column = padded_source(x - padding.left, image.width, mode);
      const bool is_outside = row < 0 || column < 0;
      const std::uint8_t* from =
          is_outside ? fill.data() : image.row(row) + static_cast<std::ptrdiff_t>(column) * channels;
      for (int c = 0; c < channels; ++c) out[c] = from[c];
    }
  }
  image.swap(spare);
}

Box center_box(ImageSize image, ImageSize crop_size) {
  const auto offset = [](int size, int wanted) {
    return wanted > size ? -((wanted - size) / 2) : half_to_even(size - wanted);
  };
  return {offset(image.height, crop_size.height), offset(image.width, crop_size.width), crop_size.height,
          crop_size.width};
}

void center_crop(Image& image, ImageSize size, const Color& fill, Image& spare) {
  Box box = center_box(image.size(), size);
  const Padding padding{.left = std::max(0, -box.left),
                        .top = std::max(0, -box.top),
                        .right = std::max(0, box.left + box.width - image.width),
                        .bottom = std::max(0, box.top + box.height - image.height)};
  if (padding.left + padding.top + padding.right + padding.bottom > 0) {
    pad(image, padding, PadMode::constant, fill, spare);
    box.left += padding.left;
    box.top += padding.top;
  }
  crop(image, box, spare);
}

AffineMatrix affine_matrix(const AffineParameters& parameters, double center_x, double center_y) {
  const auto radians = [](double degrees) { return degrees * (std::numbers::pi / 180.0); };
  const double rotation = radians(parameters.degrees);
  const double shear_x = radians(parameters.shear_x);
  const double shear_y = radians(parameters.shear_y);
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b = -std::cos(rotation - shear_y) * std::tan(shear_x) / std::cos(shear_y) - std::sin(rotation);
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d = -std::sin(rotation - shear_y) * std::tan(shear_x) / std::cos(shear_y) + std::cos(rotation);
  AffineMatrix m = {d, -b, 0, -c, a, 0};
  for (double& value : m) value /= parameters.scale;
  const double x = -center_x - parameters.translate_x;
  const double y = -center_y - parameters.translate_y;
  m[2] += m[0] * x + m[1] * y;
  m[5] += m[3] * x + m[4] * y;
  m[2] += center_x;
  m[5] += center_y;
  return m;
}

void flip_horizontally(Image& image) {
  for (int y = 0; y < image.height; ++y) {
    kernels::reverse_pixels(image.row(y), static_cast<std::size_t>(image.width), image.channels);
  }
}

}  // namespace lockstep::data
