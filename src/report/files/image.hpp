// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <string>

namespace lockstep::report {

/// An image that is a PNG, GIF or JPEG file already.
struct EncodedImage {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 3;  ///< 1 gray, 3 RGB, 4 RGBA
  std::string bytes = {};
};

/// A PNG file, of one channel where all pixels are gray.
/// @throws std::invalid_argument  there are not height * width * 3 values, or none
EncodedImage png_of(const Picture& image);

/// The bytes as text: RFC 4648, section 4.
std::string base64_of(const std::string& bytes);

}  // namespace lockstep::report
