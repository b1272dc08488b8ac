// SPDX-License-Identifier: BSD-3-Clause
// PNG files of numbers: gray or with a palette, 1 to 8 bits, without compression.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

inline std::string png_number(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

inline std::string png_chunk(const std::string& name, const std::string& content) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : name + content) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  return png_number(static_cast<std::uint32_t>(content.size())) + name + content + png_number(~crc);
}

/// A stream of deflate with one block without compression, of fewer than 65536 bytes.
inline std::string stored_stream(const std::string& content) {
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char c : content) {
    a = (a + static_cast<std::uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  const auto size = static_cast<std::uint16_t>(content.size());
  const auto little = [](std::uint16_t value) {
    return std::string{static_cast<char>(value & 255), static_cast<char>(value >> 8)};
  };
  return std::string("\x78\x01\x01", 3) + little(size) + little(static_cast<std::uint16_t>(~size)) + content +
         png_number(b << 16 | a);
}

/// @param bits  1, 2, 4 or 8 per pixel
inline std::string png_of_numbers(int width, const std::vector<std::uint8_t>& numbers, int bits, bool has_palette) {
  const auto columns = static_cast<std::size_t>(width);
  std::string rows;
  for (std::size_t y = 0; y < numbers.size() / columns; ++y) {
    std::string row((columns * static_cast<std::size_t>(bits) + 7) / 8, '\0');
    for (std::size_t x = 0; x < columns; ++x) {
      const std::size_t position = x * static_cast<std::size_t>(bits);
      const auto shift = 8 - static_cast<std::size_t>(bits) - position % 8;
      row[position / 8] = static_cast<char>(row[position / 8] | numbers[y * columns + x] << shift);
    }
    rows += '\0' + row;  // rows without a filter
  }
  const std::string header = png_number(static_cast<std::uint32_t>(width)) +
                             png_number(static_cast<std::uint32_t>(numbers.size() / columns)) +
                             std::string{static_cast<char>(bits), has_palette ? '\3' : '\0', '\0', '\0', '\0'};
  std::string palette;
  for (int i = 0; i < 3 << bits; ++i) palette += static_cast<char>(7 * i);
  return "\x89PNG\r\n\x1A\n" + png_chunk("IHDR", header) + (has_palette ? png_chunk("PLTE", palette) : "") +
         png_chunk("IDAT", stored_stream(rows)) + png_chunk("IEND", "");
}

}  // namespace lockstep::data
