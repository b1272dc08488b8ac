// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "report/files/image.hpp"

namespace lockstep::report {
namespace png_test {

std::uint32_t number_at(const std::string& bytes, std::size_t position) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(position + i));
  return value;
}

/// A PNG file as the specification's text has it, written again: chunks with lengths and checksums, and rows that each
/// say how they are filtered.
class DecodedPng {
 public:
  explicit DecodedPng(const std::string& png) {
    EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
    std::string packed;
    for (std::size_t position = 8; position < png.size();) {
      const std::size_t length = number_at(png, position);
      const std::string checked = png.substr(position + 4, 4 + length);
      const auto* const bytes = reinterpret_cast<const Bytef*>(checked.data());
      EXPECT_EQ(number_at(png, position + 8 + length), crc32(0, bytes, static_cast<uInt>(checked.size())));
      if (checked.starts_with("IHDR")) header = checked.substr(4);
      if (checked.starts_with("IDAT")) packed += checked.substr(4);
      last_chunk = checked.substr(0, 4);
      position += 12 + length;
    }
    channels = header.at(9) == 0 ? 1 : 3;
    unpack(packed);
  }

  std::string header;
  std::string last_chunk;
  std::size_t channels = 0;
  std::vector<int> pixels;

 private:
  void unpack(const std::string& packed) {
    const std::size_t row_bytes = number_at(header, 0) * channels;
    const std::size_t height = number_at(header, 4);
    std::vector<Bytef> rows(height * (1 + row_bytes));
    uLongf size = rows.size();
    ASSERT_EQ(uncompress(rows.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()), Z_OK);
    ASSERT_EQ(size, rows.size());
    for (std::size_t y = 0; y < height; ++y) {
      const int filter = rows[y * (1 + row_bytes)];
      for (std::size_t x = 0; x < row_bytes; ++x) {
        const int left = x < channels ? 0 : pixels[y * row_bytes + x - channels];
        const int above = y == 0 ? 0 : pixels[(y - 1) * row_bytes + x];
        const int corner = y == 0 || x < channels ? 0 : pixels[(y - 1) * row_bytes + x - channels];
        const int value = rows[y * (1 + row_bytes) + 1 + x];
        pixels.push_back((value + predicted(filter, left, above, corner)) & 0xFF);
      }
    }
  }

  static int predicted(int filter, int left, int above, int corner) {
    const int guess = left + above - corner;
    switch (filter) {
      case 0:
        return 0;
      case 1:
        return left;
      case 2:
        return above;
      case 3:
        return (left + above) / 2;
      default:
        break;
    }
    if (std::abs(guess - left) <= std::abs(guess - above) && std::abs(guess - left) <= std::abs(guess - corner)) {
      return left;
    }
    return std::abs(guess - above) <= std::abs(guess - corner) ? above : corner;
  }
};

TEST(PngTest, HoldsColorsRowByRowFromTheTop) {
  const std::vector<std::uint8_t> pixels = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  const EncodedImage image = png_of({.height = 2, .width = 3, .pixels = pixels});
  EXPECT_EQ(image.channels, 3);
  const DecodedPng decoded(image.bytes);
  // Width, height, 8 bits, RGB; deflate, filters by row, not interlaced.
  EXPECT_EQ(decoded.header, std::string("\0\0\0\x03\0\0\0\x02\x08\x02\0\0\0", 13));
  EXPECT_EQ(decoded.last_chunk, "IEND");
  EXPECT_EQ(decoded.pixels, std::vector<int>(pixels.begin(), pixels.end()));
}

TEST(PngTest, GrayPixelsTakeOneChannel) {
  std::vector<std::uint8_t> pixels;
  std::vector<int> expected;
  for (int i = 0; i < 28 * 30; ++i) {
    const auto shade = static_cast<std::uint8_t>(i * i % 251);
    pixels.insert(pixels.end(), 3, shade);
    expected.push_back(shade);
  }
  const EncodedImage image = png_of({.height = 28, .width = 30, .pixels = pixels});
  EXPECT_EQ(image.channels, 1);
  EXPECT_EQ(image.height, 28);
  EXPECT_EQ(image.width, 30);
  EXPECT_EQ(DecodedPng(image.bytes).pixels, expected);
}

TEST(PngTest, RefusesOtherShapes) {
  const std::vector<std::uint8_t> pixels(12);
  EXPECT_THROW(png_of({.height = 2, .width = 1, .pixels = pixels}), std::invalid_argument);
  EXPECT_THROW(png_of({.height = 0, .width = 0, .pixels = {}}), std::invalid_argument);
}

}  // namespace png_test
}  // namespace lockstep::report
