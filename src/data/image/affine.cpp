// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "data/image/geometry.hpp"

namespace lockstep::data {

namespace {

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
