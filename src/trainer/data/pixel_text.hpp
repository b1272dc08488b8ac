// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::trainer {

inline constexpr std::int64_t kTextLineHeight = 14;

/// Number of characters that fit in this number of pixels.
std::size_t pixel_text_columns(std::int64_t pixels);

/// The text in lines of at most `columns` characters, divided at blanks where possible.
std::vector<std::string> wrapped_lines(const std::string& text, std::size_t columns);

/// Draws dark text with capitals of 6 x 10 pixels. Characters without a picture are drawn as a box.
/// @param top, left  of the first character; what lies outside the image is not drawn
void draw_text(const std::string& text, std::int64_t top, std::int64_t left, Image& image);

}  // namespace lockstep::trainer
