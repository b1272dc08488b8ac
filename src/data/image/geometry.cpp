// SPDX-License-Identifier: BSD-3-Clause
#include "data/image/geometry.hpp"

#include <algorithm>
#include <charconv>
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

/// The turns of the orientations 1 to 8.
constexpr std::array<Turn, 8> kTurns = {{{false, false, false},
                                         {false, false, true},
                                         {false, true, true},
                                         {false, true, false},
                                         {true, false, false},
                                         {true, true, false},
                                         {true, true, true},
                                         {true, false, true}}};

template <int kChannels>
void copy_pixel(const std::uint8_t* from, std::uint8_t* target) {
  for (int c = 0; c < kChannels; ++c) target[c] = from[c];
}

/// If there is no rotation and no shear, the positions of rows and columns are independent. As in Pillow, they are
/// sums.
template <int kChannels>
void affine_nearest_straight(const Image& in, const AffineMatrix& m, const Color& fill, Image& out) {
  const auto positions = [](double start, double step, int count, int size) {
    std::vector<int> result(static_cast<std::size_t>(count));
    double position = start + step * 0.5;
    for (int& source : result) {
      source = position >= 0 && position < size ? static_cast<int>(position) : -1;
      position += step;
    }
    return result;
  };
  const std::vector<int> columns = positions(m[2], m[0], out.width, in.width);
  const std::vector<int> rows = positions(m[5], m[4], out.height, in.height);
  std::uint8_t* target = out.pixels.data();
  for (const int row : rows) {
    for (const int column : columns) {
      const bool is_outside = row < 0 || column < 0;
      copy_pixel<kChannels>(is_outside ? fill.data() : in.row(row) + static_cast<std::ptrdiff_t>(column) * kChannels,
                            target);
      target += kChannels;
    }
  }
}

/// Fixed point with 16 bits after the point.
template <int kChannels>
void affine_nearest(const Image& in, const AffineMatrix& m, const Color& fill, Image& out) {
  const auto fixed = [](double value) { return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5)); };
  const std::int64_t step_x = fixed(m[0]);
  const std::int64_t step_y = fixed(m[3]);
  std::int64_t row_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  std::int64_t row_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  std::uint8_t* target = out.pixels.data();
  for (int y = 0; y < out.height; ++y, row_x += fixed(m[1]), row_y += fixed(m[4])) {
    std::int64_t x_in = row_x;
    std::int64_t y_in = row_y;
    for (int x = 0; x < out.width; ++x, x_in += step_x, y_in += step_y, target += kChannels) {
      const std::int64_t column = x_in >> 16;
      const std::int64_t row = y_in >> 16;
      const bool is_outside = column < 0 || column >= in.width || row < 0 || row >= in.height;
      copy_pixel<kChannels>(is_outside ? fill.data() : in.row(static_cast<int>(row)) + column * kChannels, target);
    }
  }
}

/// A point of the input: the pixel to its upper left, and the distance from its center.
struct SourcePoint {
  int x, y;
  double dx, dy;
};

template <int kChannels>
void bilinear_pixel(const Image& in, const SourcePoint& p, std::uint8_t* target) {
  const int left = std::max(p.x, 0) * kChannels;
  const int right = std::min(p.x + 1, in.width - 1) * kChannels;
  const std::uint8_t* const upper = in.row(std::max(p.y, 0));
  const std::uint8_t* const lower = in.row(std::min(p.y + 1, in.height - 1));
  for (int c = 0; c < kChannels; ++c) {
    const double above = upper[left + c] + (upper[right + c] - upper[left + c]) * p.dx;
    const double below = lower[left + c] + (lower[right + c] - lower[left + c]) * p.dx;
    target[c] = static_cast<std::uint8_t>(above + (below - above) * p.dy);
  }
}

double cubic(double v1, double v2, double v3, double v4, double t) {
  const double p2 = -v1 + v3;
  const double p3 = 2 * (v1 - v2) + v3 - v4;
  const double p4 = -v1 + v2 - v3 + v4;
  return v2 + t * (p2 + t * (p3 + t * p4));
}

template <int kChannels>
void bicubic_pixel(const Image& in, const SourcePoint& p, std::uint8_t* target) {
  int columns[4];
  const std::uint8_t* rows[4];
  for (int i = 0; i < 4; ++i) {
    columns[i] = std::clamp(p.x - 1 + i, 0, in.width - 1) * kChannels;
    rows[i] = in.row(std::clamp(p.y - 1 + i, 0, in.height - 1));
  }
  for (int c = 0; c < kChannels; ++c) {
    double v[4];
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t* const row = rows[i] + c;
      v[i] = cubic(row[columns[0]], row[columns[1]], row[columns[2]], row[columns[3]], p.dx);
    }
    const double value = cubic(v[0], v[1], v[2], v[3], p.dy);
    target[c] = value <= 0 ? 0 : value >= 255 ? 255 : static_cast<std::uint8_t>(value);
  }
}

template <int kChannels, class Pixel>
void affine_filtered(const Image& in, const AffineMatrix& m, const Color& fill, Image& out, Pixel pixel) {
  std::uint8_t* target = out.pixels.data();
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x, target += kChannels) {
      const double center_x = x + 0.5;
      const double center_y = y + 0.5;
      const double x_in = m[0] * center_x + m[1] * center_y + m[2];
      const double y_in = m[3] * center_x + m[4] * center_y + m[5];
      if (!(x_in >= 0 && x_in < in.width && y_in >= 0 && y_in < in.height)) {
        copy_pixel<kChannels>(fill.data(), target);
        continue;
      }
      // Positions are at least -0.5, so that the conversion of a number that is 1 larger is a floor.
      const int column = static_cast<int>(x_in + 0.5) - 1;
      const int row = static_cast<int>(y_in + 0.5) - 1;
      pixel(in, SourcePoint{column, row, x_in - 0.5 - column, y_in - 0.5 - row}, target);
    }
  }
}

template <int kChannels>
void affine_channels(const Image& in, const AffineMatrix& m, ResizeFilter filter, const Color& fill, Image& out) {
  if (filter == ResizeFilter::bilinear) {
    affine_filtered<kChannels>(in, m, fill, out, bilinear_pixel<kChannels>);
  } else if (filter == ResizeFilter::bicubic) {
    affine_filtered<kChannels>(in, m, fill, out, bicubic_pixel<kChannels>);
  } else if (m[1] == 0 && m[3] == 0) {
    affine_nearest_straight<kChannels>(in, m, fill, out);
  } else {
    affine_nearest<kChannels>(in, m, fill, out);
  }
}

/// Python's round(value, 15).
double rounded_to_15_decimals(double value) {
  std::array<char, 350> text{};  // large enough for any double
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15);
  double rounded = value;
  std::from_chars(text.data(), written.ptr, rounded);
  return rounded;
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
  const Turn turn = kTurns.at(static_cast<std::size_t>(orientation - 1));
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

void affine(Image& image, const AffineMatrix& matrix, ResizeFilter filter, const Color& fill, Image& spare) {
  spare.reshape(image.size(), image.channels);
  if (image.channels == 1) {
    affine_channels<1>(image, matrix, filter, fill, spare);
  } else {
    affine_channels<3>(image, matrix, filter, fill, spare);
  }
  image.swap(spare);
}

void rotate(Image& image, double degrees, ResizeFilter filter, const Color& fill, Image& spare) {
  double angle = std::fmod(degrees, 360.0);
  if (angle < 0) angle += 360.0;
  if (angle == 0) return;
  const bool is_square = image.height == image.width;
  if (angle == 180) return apply_orientation(image, 3, spare);
  if (angle == 90 && is_square) return apply_orientation(image, 8, spare);
  if (angle == 270 && is_square) return apply_orientation(image, 6, spare);
  const double radians = -(angle * (std::numbers::pi / 180.0));
  const double cosine = rounded_to_15_decimals(std::cos(radians));
  const double sine = rounded_to_15_decimals(std::sin(radians));
  AffineMatrix m = {cosine, sine, 0, rounded_to_15_decimals(-std::sin(radians)), cosine, 0};
  const double x = image.width / 2.0;
  const double y = image.height / 2.0;
  m[2] = m[0] * -x + m[1] * -y + 0.0 + x;
  m[5] = m[3] * -x + m[4] * -y + 0.0 + y;
  affine(image, m, filter, fill, spare);
}

}  // namespace lockstep::data
