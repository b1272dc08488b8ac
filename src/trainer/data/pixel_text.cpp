// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/data/pixel_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep::trainer {

namespace {

constexpr int kGlyphWidth = 3;
constexpr int kGlyphHeight = 5;
constexpr std::int64_t kDot = 2;  // pixels
constexpr std::int64_t kAdvance = (kGlyphWidth + 1) * kDot;
constexpr std::uint8_t kInk = 40;

/// A character as five rows of three dots, from the top left.
struct Glyph {
  char character;
  std::uint16_t dots;
};

constexpr Glyph kGlyphs[] = {
    {'A', 0b010'101'111'101'101}, {'B', 0b110'101'110'101'110}, {'C', 0b011'100'100'100'011},
    {'D', 0b110'101'101'101'110}, {'E', 0b111'100'110'100'111}, {'F', 0b111'100'110'100'100},
    {'G', 0b011'100'101'101'011}, {'H', 0b101'101'111'101'101}, {'I', 0b111'010'010'010'111},
    {'J', 0b001'001'001'101'010}, {'K', 0b101'101'110'101'101}, {'L', 0b100'100'100'100'111},
    {'M', 0b101'111'111'101'101}, {'N', 0b110'101'101'101'101}, {'O', 0b010'101'101'101'010},
    {'P', 0b110'101'110'100'100}, {'Q', 0b010'101'101'010'001}, {'R', 0b110'101'110'101'101},
    {'S', 0b011'100'010'001'110}, {'T', 0b111'010'010'010'010}, {'U', 0b101'101'101'101'111},
    {'V', 0b101'101'101'101'010}, {'W', 0b101'101'111'111'101}, {'X', 0b101'101'010'101'101},
    {'Y', 0b101'101'010'010'010}, {'Z', 0b111'001'010'100'111}, {'0', 0b111'101'101'101'111},
    {'1', 0b010'110'010'010'111}, {'2', 0b110'001'010'100'111}, {'3', 0b110'001'010'001'110},
    {'4', 0b101'101'111'001'001}, {'5', 0b111'100'110'001'110}, {'6', 0b011'100'111'101'111},
    {'7', 0b111'001'001'010'010}, {'8', 0b111'101'111'101'111}, {'9', 0b111'101'111'001'110},
    {' ', 0b000'000'000'000'000}, {'.', 0b000'000'000'000'010}, {',', 0b000'000'000'010'100},
    {':', 0b000'010'000'010'000}, {';', 0b000'010'000'010'100}, {'=', 0b000'111'000'111'000},
    {'-', 0b000'000'111'000'000}, {'_', 0b000'000'000'000'111}, {'/', 0b001'001'010'100'100},
    {'(', 0b001'010'010'010'001}, {')', 0b100'010'010'010'100}, {'+', 0b000'010'111'010'000},
    {'%', 0b101'001'010'100'101}, {'[', 0b110'100'100'100'110}, {']', 0b011'001'001'001'011},
};

constexpr std::uint16_t kBox = 0b111'101'101'101'111;

std::uint16_t dots_of(char character) {
  const auto capital = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  const auto* const found = std::find_if(std::begin(kGlyphs), std::end(kGlyphs),
                                         [capital](const Glyph& glyph) { return glyph.character == capital; });
  return found != std::end(kGlyphs) ? found->dots : kBox;
}

void draw_dot(std::int64_t top, std::int64_t left, Image& image) {
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + kDot, image.height); ++y) {
    for (std::int64_t x = std::max<std::int64_t>(left, 0); x < std::min(left + kDot, image.width); ++x) {
      std::fill_n(image.pixels.begin() + 3 * (y * image.width + x), 3, kInk);
    }
  }
}

}  // namespace

std::size_t pixel_text_columns(std::int64_t pixels) { return static_cast<std::size_t>(pixels / kAdvance); }

std::vector<std::string> wrapped_lines(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (text.size() - begin > columns) {
    const std::size_t blank = text.rfind(' ', begin + columns);
    const bool is_divisible = blank != std::string::npos && blank > begin;
    const std::size_t end = is_divisible ? blank : begin + columns;
    lines.push_back(text.substr(begin, end - begin));
    begin = end + (is_divisible ? 1 : 0);
  }
  lines.push_back(text.substr(begin));
  return lines;
}

void draw_text(const std::string& text, std::int64_t top, std::int64_t left, Image& image) {
  for (const char character : text) {
    const std::uint16_t dots = dots_of(character);
    for (int i = 0; i < kGlyphWidth * kGlyphHeight; ++i) {
      const bool is_set = (dots >> (kGlyphWidth * kGlyphHeight - 1 - i) & 1) != 0;
      if (is_set) draw_dot(top + i / kGlyphWidth * kDot, left + i % kGlyphWidth * kDot, image);
    }
    left += kAdvance;
  }
}

}  // namespace lockstep::trainer
