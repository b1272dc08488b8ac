// SPDX-License-Identifier: BSD-3-Clause
// Encodes JPEG files for tests.
#pragma once

#include <lockstep/data/image.hpp>
#include <lockstep/random/random.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
// libjpeg's header does not include what it needs.
#include <jpeglib.h>

namespace lockstep::testing {

struct JpegKind {
  const char* name;
  int channels = 3;    ///< 1 gray, 3 RGB, 4 CMYK
  int horizontal = 2;  ///< sampling of luminance relative to color
  int vertical = 2;
  bool is_progressive = false;
  int restart_rows = 0;
  int quality = 90;
};

/// Smooth colors with noise, so that neighboring pixels influence each other in every stage of the format.
inline data::Image test_image(int height, int width, int channels, std::uint64_t seed = 1) {
  data::Image image;
  image.reshape({height, width}, channels);
  random::Sequence random(seed, random::Stream::user, 0);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double noise = random.uniform(-30, 30);
        const double value = 128 + 60 * ((x * (c + 1) / 7 + y * (3 - c) / 5) % 3 - 1) + noise;
        image.row(y)[x * channels + c] = static_cast<std::uint8_t>(value);
      }
    }
  }
  return image;
}

inline std::vector<std::byte> encode_jpeg(const data::Image& image, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, kind.quality, TRUE);
  info.comp_info[0].h_samp_factor = kind.horizontal;
  info.comp_info[0].v_samp_factor = kind.vertical;
  info.restart_in_rows = kind.restart_rows;
  if (kind.is_progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  data::Image copy = image;
  for (int y = 0; y < image.height; ++y) {
    JSAMPROW row = copy.row(y);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), memory, size);
  std::free(memory);
  return bytes;
}

}  // namespace lockstep::testing
