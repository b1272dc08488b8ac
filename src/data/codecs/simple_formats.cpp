// SPDX-License-Identifier: BSD-3-Clause
// PPM, PGM and BMP: formats without compression.
#include <lockstep/core/error.hpp>

#include <cstring>
#include <string>

#include "data/codecs/codecs.hpp"

namespace lockstep::data {

namespace {

bool is_blank(std::uint32_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/// The next number of a PPM header; `position` moves behind the one character that follows it.
int ppm_number(FileBytes file, std::size_t& position) {
  std::uint32_t byte = big_endian(file, position, 1);
  while (is_blank(byte) || byte == '#') {
    if (byte == '#') {
      while (byte != '\n' && byte != '\r') byte = big_endian(file, ++position, 1);
    }
    byte = big_endian(file, ++position, 1);
  }
  constexpr std::int64_t kMax = 1'000'000'000;
  std::int64_t value = 0;
  int digits = 0;
  for (; byte >= '0' && byte <= '9'; byte = big_endian(file, ++position, 1), ++digits) {
    value = value * 10 + (byte - '0');
    if (value > kMax) throw DataError("the PPM header is damaged; replace the file");
  }
  if (digits == 0 || !is_blank(byte)) throw DataError("the PPM header is damaged; replace the file");
  ++position;
  return static_cast<int>(value);
}

struct PpmLayout {
  ImageHeader header;
  std::size_t pixels;  ///< position of the first one
};

PpmLayout ppm_layout(FileBytes file) {
  PpmLayout layout{.header = {.format = ImageFormat::ppm}, .pixels = 2};
  layout.header.channels = has_text(file, 0, "P6", 2) ? 3 : 1;
  layout.header.width = ppm_number(file, layout.pixels);
  layout.header.height = ppm_number(file, layout.pixels);
  const int max_value = ppm_number(file, layout.pixels);
  if (max_value != 255) {
    throw DataError("the largest value of the PPM file is " + std::to_string(max_value) +
                    ", but only 255 is supported; convert the file to PNG");
  }
  return layout;
}

struct BmpLayout {
  ImageHeader header;
  std::size_t pixels;
  int bytes;       ///< per pixel: 3 or 4
  bool is_upward;  ///< the first row is the lowest one
};

BmpLayout bmp_layout(FileBytes file) {
  const std::uint32_t header_size = little_endian(file, 14, 4);
  if (header_size < 40) throw DataError("BMP files of OS/2 are not supported; convert the file to PNG");
  const auto width = static_cast<std::int32_t>(little_endian(file, 18, 4));
  const auto height = static_cast<std::int32_t>(little_endian(file, 22, 4));
  const std::uint32_t bits = little_endian(file, 28, 2);
  const std::uint32_t compression = little_endian(file, 30, 4);
  if ((bits != 24 && bits != 32) || compression != 0) {
    throw DataError("the BMP file has " + std::to_string(bits) + " bits and compression " +
                    std::to_string(compression) + ", but only 24 and 32 bits without compression are supported; " +
                    "convert the file to PNG");
  }
  if (width < 0 || height == INT32_MIN) throw DataError("the BMP header is damaged; replace the file");
  BmpLayout layout{.header = {.format = ImageFormat::bmp},
                   .pixels = little_endian(file, 10, 4),
                   .bytes = static_cast<int>(bits / 8),
                   .is_upward = height > 0};
  layout.header.width = width;
  layout.header.height = height > 0 ? height : -height;
  layout.header.channels = layout.bytes;
  return layout;
}

void require_bytes(FileBytes file, std::size_t first, std::size_t count) {
  if (first <= file.size() && count <= file.size() - first) return;
  throw DataError("the file has " + std::to_string(file.size()) + " bytes, but its header requires " +
                  std::to_string(first + count) + "; the file is truncated, replace it or exclude it");
}

}  // namespace

ImageHeader read_ppm_header(FileBytes file) { return ppm_layout(file).header; }

void decode_ppm(FileBytes file, const ImageHeader& header, Image& image) {
  const std::size_t first = ppm_layout(file).pixels;
  const std::size_t count = static_cast<std::size_t>(header.height) * static_cast<std::size_t>(header.width) *
                            static_cast<std::size_t>(header.channels);
  require_bytes(file, first, count);
  image.reshape(header.size(), header.channels);
  std::memcpy(image.pixels.data(), file.data() + first, count);
}

ImageHeader read_bmp_header(FileBytes file) { return bmp_layout(file).header; }

void decode_bmp(FileBytes file, const ImageHeader& header, Image& image) {
  const BmpLayout layout = bmp_layout(file);
  const auto bytes = static_cast<std::size_t>(layout.bytes);
  const std::size_t row_bytes = (static_cast<std::size_t>(header.width) * bytes + 3) / 4 * 4;
  require_bytes(file, layout.pixels, row_bytes * static_cast<std::size_t>(header.height));
  image.reshape(header.size(), 3);
  for (int y = 0; y < header.height; ++y) {
    const int stored = layout.is_upward ? header.height - 1 - y : y;
    const std::byte* from = file.data() + layout.pixels + row_bytes * static_cast<std::size_t>(stored);
    std::uint8_t* out = image.row(y);
    for (int x = 0; x < header.width; ++x, from += bytes, out += 3) {
      for (int c = 0; c < 3; ++c) out[c] = static_cast<std::uint8_t>(from[2 - c]);
    }
  }
}

}  // namespace lockstep::data
