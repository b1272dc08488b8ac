// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/image.hpp"

#include <png.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace lockstep::report {

namespace {

bool is_gray(std::span<const std::uint8_t> pixels) {
  for (std::size_t i = 0; i < pixels.size(); i += 3) {
    if (pixels[i] != pixels[i + 1] || pixels[i] != pixels[i + 2]) return false;
  }
  return true;
}

std::vector<std::uint8_t> first_channel(std::span<const std::uint8_t> pixels) {
  std::vector<std::uint8_t> gray;
  for (std::size_t i = 0; i < pixels.size(); i += 3) gray.push_back(pixels[i]);
  return gray;
}

}  // namespace

std::string base64_of(const std::string& bytes) {
  static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) text += k > count ? '=' : digits[bits >> (18 - 6 * k) & 0x3F];
  }
  return text;
}

EncodedImage png_of(const Picture& image) {
  const std::int64_t height = image.height;
  const std::int64_t width = image.width;
  const std::span<const std::uint8_t> pixels = image.pixels;
  if (height < 1 || width < 1 || pixels.size() != static_cast<std::size_t>(3 * height * width)) {
    throw std::invalid_argument("an image needs height * width * 3 values and at least one pixel");
  }
  const bool has_one_channel = is_gray(pixels);
  const std::vector<std::uint8_t> gray = has_one_channel ? first_channel(pixels) : std::vector<std::uint8_t>();
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.height = static_cast<png_uint_32>(height);
  header.width = static_cast<png_uint_32>(width);
  header.format = has_one_channel ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  EncodedImage encoded{.height = height, .width = width, .channels = has_one_channel ? 1 : 3};
  encoded.bytes.resize(size);
  const void* const rows = has_one_channel ? gray.data() : pixels.data();
  if (png_image_write_to_memory(&header, encoded.bytes.data(), &size, 0, rows, 0, nullptr) == 0) {
    throw std::runtime_error(std::string("libpng could not compress an image: ") + header.message);
  }
  encoded.bytes.resize(size);
  return encoded;
}

}  // namespace lockstep::report
