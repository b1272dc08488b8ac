// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <webp/decode.h>

#include "data/codecs/codecs.hpp"

namespace lockstep::data {

namespace {

const std::uint8_t* webp_bytes(FileBytes file) { return reinterpret_cast<const std::uint8_t*>(file.data()); }

/// Metadata are chunks of the extended format, which states them in its flags. The first ones count.
int webp_orientation(FileBytes file) {
  constexpr std::size_t kFirstChunk = 12;
  constexpr unsigned kExifFlag = 8;
  constexpr unsigned kXmpFlag = 4;
  if (!has_text(file, kFirstChunk, "VP8X", 4)) return 1;
  Metadata metadata;
  try {
    const unsigned flags = big_endian(file, kFirstChunk + 8, 1);
    for (std::size_t position = kFirstChunk; position + 8 <= file.size();) {
      const std::size_t length = little_endian(file, position + 4, 4);
      if (length > file.size() - position - 8) break;
      const FileBytes chunk = file.subspan(position + 8, length);
      if (has_text(file, position, "EXIF", 4) && (flags & kExifFlag) != 0 && metadata.exif.empty())
        metadata.exif = chunk;
      if (has_text(file, position, "XMP ", 4) && (flags & kXmpFlag) != 0 && metadata.xmp.empty()) metadata.xmp = chunk;
      position += 8 + length + length % 2;
    }
  } catch (const DataError&) {  // the decoder reports truncated files
  }
  return metadata.orientation();
}

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
          .channels = features.has_alpha != 0 ? 4 : 3,
          .orientation = webp_orientation(file)};
}

void decode_webp(FileBytes file, const ImageHeader& header, Image& image) {
  image.reshape(header.size(), 3);
  const auto* end = WebPDecodeRGBInto(webp_bytes(file), file.size(), image.pixels.data(), image.pixels.size(),
                                      static_cast<int>(image.stride()));
  if (end == nullptr) throw DataError("the WebP data are damaged or truncated; replace the file or exclude it");
}

}  // namespace lockstep::data
