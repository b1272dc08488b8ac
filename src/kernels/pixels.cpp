// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/pixels.hpp"

#include <utility>

namespace lockstep::kernels {

namespace {

LOCKSTEP_INLINE void write_luminance(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* out) {
  for (std::size_t i = 0; i < pixels; ++i) out[i] = luminance(rgb + 3 * i);
}

LOCKSTEP_INLINE std::int64_t add_luminance(const std::uint8_t* pixels, std::size_t count, int channels) {
  std::int64_t sum = 0;
  if (channels == 1) {
    for (std::size_t i = 0; i < count; ++i) sum += pixels[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) sum += luminance(pixels + 3 * i);
  }
  return sum;
}

LOCKSTEP_INLINE void saturate_pixels(std::uint8_t* rgb, std::size_t pixels, float factor) {
  for (std::size_t i = 0; i < pixels; ++i) {
    std::uint8_t* const pixel = rgb + 3 * i;
    const int gray = luminance(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = blend(gray, pixel[c], factor);
  }
}

LOCKSTEP_INLINE void sharpen_row(const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below,
                                 std::size_t channels, std::size_t count, float factor, std::uint8_t* __restrict out) {
  const std::size_t right = 2 * channels;
  for (std::size_t i = 0; i < count; ++i) {
    const int sum = above[i] + above[i + channels] + above[i + right] + row[i] + 5 * row[i + channels] +
                    row[i + right] + below[i] + below[i + channels] + below[i + right];
    // floor(sum / 13 + 1 / 2): never a tie, so that Pillow's float32 sum gives the same.
    out[i] = blend((2 * sum + 13) / 26, row[i + channels], factor);
  }
}

LOCKSTEP_INLINE void blend_row(const float* own, const float* partner, std::size_t count, double share, float* out) {
  const auto of_own = static_cast<float>(share);
  const auto of_partner = static_cast<float>(1.0 - share);
  for (std::size_t i = 0; i < count; ++i) out[i] = of_own * own[i] + of_partner * partner[i];
}

LOCKSTEP_INLINE void add_weighted(const float* in, std::size_t count, std::size_t step, const float* kernel, int size,
                                  float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = kernel[0] * in[i];
  for (int k = 1; k < size; ++k) {
    const float* const from = in + static_cast<std::size_t>(k) * step;
    const float weight = kernel[k];
    for (std::size_t i = 0; i < count; ++i) out[i] += weight * from[i];
  }
}

LOCKSTEP_INLINE void round_all(const float* in, std::size_t count, std::uint8_t* out) {
  constexpr float kShift = 8388608.0F;  // 2^23: numbers above it have no fraction
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(static_cast<int>((in[i] + kShift) - kShift));
}

}  // namespace

void luminance(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* out) {
  at_level<write_luminance>(rgb, pixels, out);
}

std::int64_t sum_of_luminance(const std::uint8_t* pixels, std::size_t count, int channels) {
  return at_level<add_luminance>(pixels, count, channels);
}

void saturate(std::uint8_t* rgb, std::size_t pixels, float factor) { at_level<saturate_pixels>(rgb, pixels, factor); }

void sharpen(const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below, std::size_t channels,
             std::size_t count, float factor, std::uint8_t* out) {
  at_level<sharpen_row>(above, row, below, channels, count, factor, out);
}

void reverse_pixels(std::uint8_t* row, std::size_t pixels, int channels) {
  if (pixels == 0) return;
  std::uint8_t* left = row;
  std::uint8_t* right = row + (pixels - 1) * static_cast<std::size_t>(channels);
  for (; left < right; left += channels, right -= channels) {
    for (int c = 0; c < channels; ++c) std::swap(left[c], right[c]);
  }
}

void look_up(const std::uint8_t* bytes, std::size_t pixels, int channels, const float* table, std::size_t plane,
             float* out) {
  if (channels == 1) {
    for (std::size_t i = 0; i < pixels; ++i) out[i] = table[bytes[i]];
    return;
  }
  float* const red = out;
  float* const green = out + plane;
  float* const blue = out + 2 * plane;
  for (std::size_t i = 0; i < pixels; ++i) {
    const std::uint8_t* const pixel = bytes + 3 * i;
    red[i] = table[pixel[0]];
    green[i] = table[256 + pixel[1]];
    blue[i] = table[512 + pixel[2]];
  }
}

void look_up_pixels(const std::uint8_t* bytes, std::size_t pixels, int channels, const float* table, float* out) {
  if (channels == 1) return look_up(bytes, pixels, channels, table, pixels, out);
  for (std::size_t i = 0; i < 3 * pixels; i += 3) {
    out[i] = table[bytes[i]];
    out[i + 1] = table[256 + bytes[i + 1]];
    out[i + 2] = table[512 + bytes[i + 2]];
  }
}

void blend_rows(const float* own, const float* partner, std::size_t count, double share, float* out) {
  at_level<blend_row>(own, partner, count, share, out);
}

void weighted_sums(const float* in, std::size_t count, std::size_t step, const float* kernel, int size, float* out) {
  at_level<add_weighted>(in, count, step, kernel, size, out);
}

void round_to_bytes(const float* in, std::size_t count, std::uint8_t* out) { at_level<round_all>(in, count, out); }

}  // namespace lockstep::kernels
