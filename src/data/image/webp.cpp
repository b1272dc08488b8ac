// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <webp/decode.h>

#include "data/image/codecs.hpp"

namespace lockstep::data {

namespace {

const std::uint8_t* webp_bytes(FileBytes file) { return reinterpret_cast<const std::uint8_t*>(file.data()); }

}  // namespace

bool reads_webp() noexcept { return true; }

ImageHeader read_webp_header(FileBytes file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(webp_bytes(file), file.size(), &features) != VP8_STATUS_OK) {
    throw DataError("the WebP header is damaged; replace the file");
  }
  if (features.has_animation != 0) throw DataError("animated WebP files are not supported; convert the file to PNG");
  return {.format = ImageFormat::webp,
          .height = features.height,
          .width = features.width,
          .channels = features.has_alpha != 0 ? 4 : 3};
}

void decode_webp(FileBytes file, const ImageHeader& header, Image& image) {
  image.reshape(header.size(), 3);
  const auto* end = WebPDecodeRGBInto(webp_bytes(file), file.size(), image.pixels.data(), image.pixels.size(),
                                      static_cast<int>(image.stride()));
  if (end == nullptr) throw DataError("the WebP data are damaged or truncated; replace the file or exclude it");
}

}  // namespace lockstep::data
