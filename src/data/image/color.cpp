// SPDX-License-Identifier: BSD-3-Clause
#include "data/image/color.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/pixels.hpp"

namespace lockstep::data {

namespace {

using Histogram = std::array<std::int64_t, 256>;

std::size_t pixel_count(const Image& image) {
  return static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
}

/// Applies one table to all channels.
template <class Function>
void map_bytes(Image& image, Function function) {
  std::array<std::uint8_t, 256> table;
  for (int value = 0; value < 256; ++value) table[static_cast<std::size_t>(value)] = function(value);
  for (std::uint8_t& byte : image.pixels) byte = table[byte];
}

/// Applies a table per channel, which `make` computes from its histogram.
template <class Make>
void map_by_histogram(Image& image, Make make) {
  const auto channels = static_cast<std::size_t>(image.channels);
  std::array<Histogram, 3> histograms{};
  std::array<std::array<std::uint8_t, 256>, 3> tables;
  const std::size_t size = pixel_count(image) * channels;
  for (std::size_t i = 0; i < size; i += channels) {
    for (std::size_t c = 0; c < channels; ++c) ++histograms[c][image.pixels[i + c]];
  }
  for (std::size_t c = 0; c < channels; ++c) make(histograms[c], tables[c]);
  for (std::size_t i = 0; i < size; i += channels) {
    for (std::size_t c = 0; c < channels; ++c) image.pixels[i + c] = tables[c][image.pixels[i + c]];
  }
}

void identity_table(std::array<std::uint8_t, 256>& table) {
  for (std::size_t i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(i);
}

void autocontrast_table(const Histogram& histogram, std::array<std::uint8_t, 256>& table) {
  int low = 0;
  int high = 255;
  while (low < 255 && histogram[static_cast<std::size_t>(low)] == 0) ++low;
  while (high > 0 && histogram[static_cast<std::size_t>(high)] == 0) --high;
  if (high <= low) return identity_table(table);
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  for (int i = 0; i < 256; ++i) {
    table[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(std::clamp(static_cast<int>(i * scale + offset), 0, 255));
  }
}

void equalize_table(const Histogram& histogram, std::array<std::uint8_t, 256>& table) {
  std::int64_t total = 0;
  std::int64_t last = 0;
  int used = 0;
  for (const std::int64_t count : histogram) {
    if (count == 0) continue;
    total += count;
    last = count;
    ++used;
  }
  const std::int64_t step = (total - last) / 255;
  if (used <= 1 || step == 0) return identity_table(table);
  std::int64_t sum = step / 2;
  for (std::size_t i = 0; i < 256; ++i) {
    table[i] = static_cast<std::uint8_t>(std::min<std::int64_t>(sum / step, 255));
    sum += histogram[i];
  }
}

/// Pillow's conversion to hue and saturation (8 bits), a shift of the hue, and the conversion back.
void shift_hue(std::uint8_t* pixel, std::uint8_t shift) {
  const int r = pixel[0];
  const int g = pixel[1];
  const int b = pixel[2];
  const int max = std::max({r, g, b});
  const int min = std::min({r, g, b});
  std::uint8_t hue = 0;
  int saturation = 0;
  if (max != min) {
    const auto range = static_cast<float>(max - min);
    const float s = range / static_cast<float>(max);
    const float rc = static_cast<float>(max - r) / range;
    const float gc = static_cast<float>(max - g) / range;
    const float bc = static_cast<float>(max - b) / range;
    auto h = static_cast<float>(r == max ? static_cast<double>(bc - gc) : g == max ? 2.0 + rc - bc : 4.0 + gc - rc);
    h = static_cast<float>(std::fmod(h / 6.0 + 1.0, 1.0));
    hue = static_cast<std::uint8_t>(std::clamp(static_cast<int>(h * 255.0), 0, 255));
    saturation = std::clamp(static_cast<int>(s * 255.0), 0, 255);
  }
  hue = static_cast<std::uint8_t>(hue + shift);
  if (saturation == 0) {
    pixel[0] = pixel[1] = pixel[2] = static_cast<std::uint8_t>(max);
    return;
  }
  const auto position = static_cast<float>(hue * 6.0 / 255.0);
  const int sector = static_cast<int>(position);
  const float f = position - static_cast<float>(sector);
  const float fs = static_cast<float>(saturation) / 255.0F;
  const auto level = [max](double value) {
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(std::round(max * value)), 0, 255));
  };
  const std::uint8_t v = static_cast<std::uint8_t>(max);
  const std::uint8_t p = level(1.0 - fs);
  const std::uint8_t q = level(1.0 - static_cast<double>(fs) * f);
  const std::uint8_t t = level(1.0 - static_cast<double>(fs) * (1.0 - f));
  const std::array<std::array<std::uint8_t, 3>, 6> sectors = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::memcpy(pixel, sectors[static_cast<std::size_t>(sector % 6)].data(), 3);
}

}  // namespace

void set_channels(Image& image, int channels, Image& spare) {
  if (image.channels == channels) return;
  spare.reshape(image.size(), channels);
  const std::size_t count = pixel_count(image);
  if (channels == 1) {
    kernels::luminance(image.pixels.data(), count, spare.pixels.data());
  } else {
    for (std::size_t i = 0; i < count; ++i) std::memset(spare.pixels.data() + 3 * i, image.pixels[i], 3);
  }
  image.swap(spare);
}

void to_grayscale(Image& image) {
  if (image.channels != 3) return;
  const std::size_t count = pixel_count(image);
  std::uint8_t* pixel = image.pixels.data();
  for (std::size_t i = 0; i < count; ++i, pixel += 3) pixel[0] = pixel[1] = pixel[2] = kernels::luminance(pixel);
}

void adjust_brightness(Image& image, double factor) {
  const auto f = static_cast<float>(factor);
  map_bytes(image, [f](int value) { return kernels::blend(0, value, f); });
}

void adjust_contrast(Image& image, double factor) {
  const std::size_t count = pixel_count(image);
  const std::int64_t sum = kernels::sum_of_luminance(image.pixels.data(), count, image.channels);
  const int mean = static_cast<int>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
  const auto f = static_cast<float>(factor);
  map_bytes(image, [mean, f](int value) { return kernels::blend(mean, value, f); });
}

void adjust_saturation(Image& image, double factor) {
  if (image.channels == 3) kernels::saturate(image.pixels.data(), pixel_count(image), static_cast<float>(factor));
}

void adjust_sharpness(Image& image, double factor, Image& spare) {
  if (image.height < 3 || image.width < 3) return;
  const auto f = static_cast<float>(factor);
  spare.reshape(image.size(), image.channels);
  const auto channels = static_cast<std::size_t>(image.channels);
  std::memcpy(spare.row(0), image.row(0), image.stride());
  std::memcpy(spare.row(image.height - 1), image.row(image.height - 1), image.stride());
  for (int y = 1; y + 1 < image.height; ++y) {
    const std::size_t inner = image.stride() - 2 * channels;
    std::uint8_t* const out = spare.row(y);
    std::memcpy(out, image.row(y), channels);
    kernels::sharpen(image.row(y - 1), image.row(y), image.row(y + 1), channels, inner, f, out + channels);
    std::memcpy(out + channels + inner, image.row(y) + channels + inner, channels);
  }
  image.swap(spare);
}

void adjust_hue(Image& image, double factor) {
  if (image.channels != 3) return;
  const auto shift = static_cast<std::uint8_t>(static_cast<int>(factor * 255));
  const std::size_t count = pixel_count(image);
  for (std::size_t i = 0; i < count; ++i) shift_hue(image.pixels.data() + 3 * i, shift);
}

void posterize(Image& image, int bits) {
  const int mask = 0xFF & ~((1 << (8 - std::clamp(bits, 0, 8))) - 1);
  map_bytes(image, [mask](int value) { return static_cast<std::uint8_t>(value & mask); });
}

void solarize(Image& image, double threshold) {
  map_bytes(image,
            [threshold](int value) { return static_cast<std::uint8_t>(value < threshold ? value : 255 - value); });
}

void solarize_add(Image& image, int add, int threshold) {
  map_bytes(image, [add, threshold](int value) {
    return static_cast<std::uint8_t>(value < threshold ? std::min(255, value + add) : value);
  });
}

void invert(Image& image) {
  map_bytes(image, [](int value) { return static_cast<std::uint8_t>(255 - value); });
}

void autocontrast(Image& image) { map_by_histogram(image, autocontrast_table); }

void equalize(Image& image) { map_by_histogram(image, equalize_table); }

void apply_jitter(Image& image, const ColorJitter& drawn) {
  constexpr std::array kChanges = {adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue};
  for (const std::int8_t kind : drawn.order) {
    const auto i = static_cast<std::size_t>(kind);
    if (drawn.uses[i]) kChanges[i](image, drawn.factors[i]);
  }
}

}  // namespace lockstep::data
