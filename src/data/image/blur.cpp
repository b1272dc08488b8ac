// SPDX-License-Identifier: BSD-3-Clause
#include "data/image/blur.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/pixels.hpp"

namespace lockstep::data {

namespace {

int reflected(int position, int size) {
  if (size == 1) return 0;
  const int period = 2 * (size - 1);
  const int phase = std::abs(position) % period;
  return phase < size ? phase : period - phase;
}

/// Writes the weights of torchvision's kernel.
void write_kernel(int size, double sigma, float* kernel) {
  float sum = 0;
  for (int i = 0; i < size; ++i) {
    const auto x = static_cast<float>((i - (size - 1) * 0.5) / sigma);
    kernel[i] = std::exp(-0.5F * x * x);
    sum += kernel[i];
  }
  for (int i = 0; i < size; ++i) kernel[i] /= sum;
}

/// A box blur of Pillow along one line of pixels.
struct BoxBlur {
  explicit BoxBlur(float radius)
      : reach(static_cast<int>(radius)),
        weight(static_cast<std::uint32_t>((1 << 24) / (radius * 2 + 1))),
        edge_weight(((1U << 24) - static_cast<std::uint32_t>(reach * 2 + 1) * weight) / 2) {}

  /// @param step  bytes from a pixel of the line to the next
  void run(const std::uint8_t* in, int count, std::size_t step, std::uint8_t* out) const {
    const auto pixel_at = [&](int i) -> std::uint32_t {
      return in[static_cast<std::size_t>(std::clamp(i, 0, count - 1)) * step];
    };
    std::uint32_t sum = 0;
    for (int i = -reach; i <= reach; ++i) sum += pixel_at(i);
    for (int i = 0; i < count; ++i) {
      const std::uint32_t edges = pixel_at(i - reach - 1) + pixel_at(i + reach + 1);
      out[i] = static_cast<std::uint8_t>((sum * weight + edges * edge_weight + (1U << 23)) >> 24);
      sum += pixel_at(i + reach + 1) - pixel_at(i - reach);
    }
  }

  int reach;
  std::uint32_t weight;
  std::uint32_t edge_weight;
};

float box_radius(double radius) {
  constexpr int kPasses = 3;
  const auto r = static_cast<float>(radius);
  const float sigma2 = r * r / kPasses;
  const auto length = static_cast<float>(std::sqrt(12.0 * sigma2 + 1.0));
  const auto whole_part = static_cast<float>(std::floor((length - 1.0) / 2.0));
  float fraction = (2 * whole_part + 1) * (whole_part * (whole_part + 1) - 3 * sigma2);
  fraction /= 6 * (sigma2 - (whole_part + 1) * (whole_part + 1));
  return whole_part + fraction;
}

/// Three box blurs along one line, in place.
void blur_line(const BoxBlur& blur, std::uint8_t* line, int count, std::size_t step, std::uint8_t* spare) {
  std::uint8_t* const other = spare + count;
  blur.run(line, count, step, spare);
  blur.run(spare, count, 1, other);
  blur.run(other, count, 1, spare);
  for (int i = 0; i < count; ++i) line[static_cast<std::size_t>(i) * step] = spare[i];
}

}  // namespace

std::vector<float> gaussian_kernel(int size, double sigma) {
  std::vector<float> kernel(static_cast<std::size_t>(size));
  write_kernel(size, sigma, kernel.data());
  return kernel;
}

void gaussian_blur(Image& image, int size, double sigma, Workspace& workspace) {
  std::array<float, kMaxBlurKernel> kernel;
  write_kernel(size, sigma, kernel.data());
  const int half = size / 2;
  const int channels = image.channels;
  const std::size_t stride = image.stride();
  const std::size_t padded = stride + static_cast<std::size_t>(2 * half * channels);
  const auto height = static_cast<std::size_t>(image.height);
  workspace.numbers.resize((height + 2 * static_cast<std::size_t>(half)) * stride + padded + stride);
  float* const rows = workspace.numbers.data();  // blurred horizontally, with reflected rows above and below
  float* const line = rows + (height + 2 * static_cast<std::size_t>(half)) * stride;
  float* const sums = line + padded;
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* const row = image.row(y);
    for (int x = -half; x < image.width + half; ++x) {
      const int from = reflected(x, image.width) * channels;
      for (int c = 0; c < channels; ++c) line[(x + half) * channels + c] = row[from + c];
    }
    kernels::weighted_sums(line, stride, static_cast<std::size_t>(channels), kernel.data(), size,
                           rows + static_cast<std::size_t>(y + half) * stride);
  }
  for (int y = -half; y < image.height + half; ++y) {
    if (y >= 0 && y < image.height) continue;
    const float* const from = rows + static_cast<std::size_t>(reflected(y, image.height) + half) * stride;
    std::copy_n(from, stride, rows + static_cast<std::size_t>(y + half) * stride);
  }
  for (int y = 0; y < image.height; ++y) {
    kernels::weighted_sums(rows + static_cast<std::size_t>(y) * stride, stride, stride, kernel.data(), size, sums);
    kernels::round_to_bytes(sums, stride, image.row(y));
  }
}

void gaussian_blur_pil(Image& image, double radius, Workspace& workspace) {
  const float box = box_radius(radius);
  if (!(box > 0)) return;
  const BoxBlur blur(box);
  const auto channels = static_cast<std::size_t>(image.channels);
  workspace.rows.resize(2 * static_cast<std::size_t>(std::max(image.height, image.width)));
  std::uint8_t* const spare = workspace.rows.data();
  for (int y = 0; y < image.height; ++y) {
    for (std::size_t c = 0; c < channels; ++c) blur_line(blur, image.row(y) + c, image.width, channels, spare);
  }
  for (std::size_t i = 0; i < image.stride(); ++i) {
    blur_line(blur, image.pixels.data() + i, image.height, image.stride(), spare);
  }
}

}  // namespace lockstep::data
