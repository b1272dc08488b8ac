// SPDX-License-Identifier: BSD-3-Clause
#include "data/image/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

#include "kernels/resize.hpp"

namespace lockstep::data {

namespace {

double box_weight(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double bilinear_weight(double x) {
  x = std::abs(x);
  return x < 1 ? 1 - x : 0;
}

double hamming_weight(double x) {
  x = std::abs(x);
  if (x == 0) return 1;
  if (x >= 1) return 0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}

double bicubic_weight(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos_weight(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

struct FilterRow {
  double support;
  double (*weight)(double);
};

/// By filter. Nearest pixels need no weights.
constexpr std::array<FilterRow, 6> kFilterRows = {{{1, bilinear_weight},
                                                   {0.5, box_weight},
                                                   {1, bilinear_weight},
                                                   {1, hamming_weight},
                                                   {2, bicubic_weight},
                                                   {3, lanczos_weight}}};

/// A range of pixels of one axis.
struct AxisRange {
  int first;
  int count;
};

/// The filter on one axis from `in` to `out` pixels.
struct Axis {
  Axis(int in_size, int out_size, ResizeFilter filter)
      : row(kFilterRows[static_cast<std::size_t>(filter)]),
        in(in_size),
        scale(static_cast<double>(in_size) / out_size),
        filter_scale(std::max(1.0, scale)),
        support(row.support * filter_scale) {}

  double center(int i) const { return (i + 0.5) * scale; }
  /// The inputs of output pixel i.
  AxisRange inputs(int i) const {
    const int first = std::max(0, static_cast<int>(center(i) - support + 0.5));
    const int end = std::min(in, static_cast<int>(center(i) + support + 0.5));
    return {first, end - first};
  }
  AxisRange inputs(AxisRange part) const {
    const int first = inputs(part.first).first;
    const AxisRange last = inputs(part.first + part.count - 1);
    return {first, last.first + last.count - first};
  }
  /// Rounds the normalized weights of output pixel i.
  void write_weights(int i, AxisRange taps, std::int32_t* weights) const {
    const double step = 1 / filter_scale;
    const double middle = center(i);
    double sum = 0;
    for (int tap = 0; tap < taps.count; ++tap) sum += row.weight((tap + taps.first - middle + 0.5) * step);
    for (int tap = 0; tap < taps.count; ++tap) {
      double weight = row.weight((tap + taps.first - middle + 0.5) * step);
      if (sum != 0) weight /= sum;
      const double scaled = weight * (1 << kernels::kWeightBits);
      weights[tap] = static_cast<std::int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
    }
  }

  FilterRow row;
  int in;
  double scale;
  double filter_scale;
  double support;
};

void write_pairs(const std::int32_t* weights, int taps, std::int32_t* pairs) {
  for (int tap = 0; tap < taps; tap += 2) {
    const std::uint32_t low = (weights[tap] & 0x7FFF) | static_cast<std::uint32_t>(weights[tap + 1] & 0x7FFF) << 16;
    const std::uint32_t high = static_cast<std::uint16_t>(weights[tap] >> 15) |
                               static_cast<std::uint32_t>(static_cast<std::uint16_t>(weights[tap + 1] >> 15)) << 16;
    pairs[tap] = static_cast<std::int32_t>(low);
    pairs[tap + 1] = static_cast<std::int32_t>(high);
  }
}

/// @param given  the input pixels that are available
kernels::AxisTaps axis_taps(const Axis& axis, AxisRange part, AxisRange given, Buffer<std::int32_t>& memory) {
  int used_taps = kernels::kTapGroup;
  for (int i = 0; i < part.count; ++i) used_taps = std::max(used_taps, axis.inputs(part.first + i).count);
  used_taps = (used_taps + kernels::kTapGroup - 1) / kernels::kTapGroup * kernels::kTapGroup;
  const auto count = static_cast<std::size_t>(part.count);
  const std::size_t all = count * static_cast<std::size_t>(used_taps);
  memory.resize(count + 2 * all);
  std::int32_t* const starts = memory.data();
  std::int32_t* const weights = starts + count;
  std::int32_t* const pairs = weights + all;
  std::memset(weights, 0, all * sizeof(std::int32_t));
  for (int i = 0; i < part.count; ++i) {
    const AxisRange inputs = axis.inputs(part.first + i);
    // Leading zeros replace trailing ones, so that no pixels beyond the end are read, at the end.
    starts[i] = std::min(inputs.first - given.first, std::max(0, given.count - used_taps));
    std::int32_t* const own = weights + static_cast<std::ptrdiff_t>(i) * used_taps;
    axis.write_weights(part.first + i, inputs, own + (inputs.first - given.first - starts[i]));
    write_pairs(own, used_taps, pairs + static_cast<std::ptrdiff_t>(i) * used_taps);
  }
  return {.count = part.count, .taps = used_taps, .starts = starts, .weights = weights, .pairs = pairs};
}

/// Sources of nearest pixels. As in Pillow, positions are sums.
void nearest_sources(int in, int out, AxisRange part, int origin, std::int32_t* sources) {
  const double step = static_cast<double>(in) / out;
  double position = step * 0.5;
  for (int i = 0; i < part.first; ++i) position += step;
  for (int i = 0; i < part.count; ++i, position += step) sources[i] = static_cast<int>(position) - origin;
}

AxisRange nearest_inputs(int in, int out, AxisRange part) {
  const double step = static_cast<double>(in) / out;
  double position = step * 0.5;
  for (int i = 0; i < part.first; ++i) position += step;
  const int first = static_cast<int>(position);
  for (int i = 1; i < part.count; ++i) position += step;
  return {first, static_cast<int>(position) - first + 1};
}

AxisRange axis_inputs(int in, int out, ResizeFilter filter, AxisRange part) {
  if (in == out) return part;
  if (filter == ResizeFilter::nearest) return nearest_inputs(in, out, part);
  return Axis(in, out, filter).inputs(part);
}

void resize_nearest(Patch& patch, ImageSize out, const Box& part, Workspace& workspace) {
  Image& result = workspace.spare;
  const Image& image = patch.image;
  result.reshape(part.size(), image.channels);
  workspace.weights.resize(static_cast<std::size_t>(part.width) + static_cast<std::size_t>(part.height));
  std::int32_t* const columns = workspace.weights.data();
  std::int32_t* const rows = columns + part.width;
  nearest_sources(patch.full.width, out.width, {part.left, part.width}, patch.area.left, columns);
  nearest_sources(patch.full.height, out.height, {part.top, part.height}, patch.area.top, rows);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (int y = 0; y < part.height; ++y) {
    const std::uint8_t* const row = image.row(rows[y]);
    std::uint8_t* target = result.row(y);
    for (int x = 0; x < part.width; ++x, target += channels) {
      std::memcpy(target, row + static_cast<std::size_t>(columns[x]) * channels, channels);
    }
  }
  patch.image.swap(result);
}

/// Cuts the patch to these pixels of the full image.
void cut(Patch& patch, const Box& box, Image& spare) {
  crop(patch.image, {box.top - patch.area.top, box.left - patch.area.left, box.height, box.width}, spare);
  patch.area = box;
}

/// The horizontal pass, over the rows that the vertical one reads.
void filter_rows(Patch& patch, const Axis& axis, AxisRange columns, Workspace& workspace) {
  Image& result = workspace.spare;
  const kernels::AxisTaps taps = axis_taps(axis, columns, {patch.area.left, patch.area.width}, workspace.weights);
  result.reshape({patch.image.height, columns.count}, patch.image.channels);
  kernels::resize_rows(patch.image.pixels.data(), patch.image.stride(), patch.image.height, patch.image.channels, taps,
                       result.pixels.data());
  patch.image.swap(result);
}

void filter_columns(Patch& patch, const Axis& axis, AxisRange rows, Workspace& workspace) {
  Image& result = workspace.spare;
  const kernels::AxisTaps taps = axis_taps(axis, rows, {patch.area.top, patch.area.height}, workspace.weights);
  result.reshape({rows.count, patch.image.width}, patch.image.channels);
  kernels::resize_columns(patch.image.pixels.data(), patch.image.height, patch.image.stride(), taps,
                          result.pixels.data());
  patch.image.swap(result);
}

}  // namespace

const std::vector<std::string>& filter_names() {
  static const std::vector<std::string> names = {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"};
  return names;
}

const std::vector<std::string>& affine_filter_names() {
  static const std::vector<std::string> names = {"nearest", "bilinear", "bicubic"};
  return names;
}

ResizeFilter filter_named(const std::string& name) {
  const auto& names = filter_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::out_of_range("no filter " + name);
  return static_cast<ResizeFilter>(found - names.begin());
}

Box resize_part_before(ImageSize in, ImageSize out, ResizeFilter filter, const Box& part) {
  const AxisRange rows = axis_inputs(in.height, out.height, filter, {part.top, part.height});
  const AxisRange columns = axis_inputs(in.width, out.width, filter, {part.left, part.width});
  return {rows.first, columns.first, rows.count, columns.count};
}

void resize_part(Patch& patch, ImageSize out, ResizeFilter filter, const Box& part, Workspace& workspace) {
  const ImageSize in = patch.full;
  if (filter == ResizeFilter::nearest) {
    resize_nearest(patch, out, part, workspace);
  } else {
    cut(patch, resize_part_before(in, out, filter, part), workspace.spare);
    if (in.width != out.width) {
      filter_rows(patch, Axis(in.width, out.width, filter), {part.left, part.width}, workspace);
    }
    if (in.height != out.height) {
      filter_columns(patch, Axis(in.height, out.height, filter), {part.top, part.height}, workspace);
    }
  }
  patch.area = part;
  patch.full = out;
}

void resize(Image& image, ImageSize out, ResizeFilter filter, Workspace& workspace) {
  Patch patch{.image = {}, .area = whole(image.size()), .full = image.size()};
  patch.image.swap(image);
  resize_part(patch, out, filter, whole(out), workspace);
  image.swap(patch.image);
}

ImageSize resized_size(ImageSize image, int size, int max_size, SizeMode mode) {
  if (mode == SizeMode::squash) return {size, size};
  const bool is_tall = image.width <= image.height;
  const int short_in = is_tall ? image.width : image.height;
  const int long_in = is_tall ? image.height : image.width;
  int short_out = size;
  int long_out = 0;
  if (mode == SizeMode::short_side) {
    long_out = static_cast<int>(static_cast<double>(static_cast<std::int64_t>(size) * long_in) / short_in);
    if (max_size > 0 && long_out > max_size) {
      short_out = static_cast<int>(static_cast<double>(static_cast<std::int64_t>(max_size) * short_out) / long_out);
      long_out = max_size;
    }
  } else {
    long_out = size;
    short_out = static_cast<int>(static_cast<double>(static_cast<std::int64_t>(size) * short_in) / long_in);
  }
  short_out = std::max(short_out, 1);
  return is_tall ? ImageSize{long_out, short_out} : ImageSize{short_out, long_out};
}

}  // namespace lockstep::data
