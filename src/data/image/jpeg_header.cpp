// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <string>

#include "data/image/codecs.hpp"

namespace lockstep::data {

namespace {

constexpr std::size_t kExifNameSize = 6;  // "Exif" and two zero bytes

/// A start-of-frame marker, which states the size and the kind of coding.
bool is_frame(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

void read_frame(FileBytes file, std::size_t at, unsigned marker, ImageHeader& header) {
  const unsigned kind = marker & 3U;  // 0 baseline, 1 extended, 2 progressive, 3 lossless
  header.bits = static_cast<int>(big_endian(file, at, 1));
  header.height = static_cast<int>(big_endian(file, at + 1, 2));
  header.width = static_cast<int>(big_endian(file, at + 3, 2));
  header.channels = static_cast<int>(big_endian(file, at + 5, 1));
  header.is_progressive = kind == 2;
  const std::string remedy = " are not supported; convert the file to a baseline JPEG with 8 bits";
  if (kind == 3) throw DataError("lossless JPEG files" + remedy);
  if (marker == 0xC5 || marker == 0xC6 || marker == 0xCD || marker == 0xCE) {
    throw DataError("hierarchical JPEG files" + remedy);
  }
  if (header.bits != 8) throw DataError("JPEG files with " + std::to_string(header.bits) + " bits (12-bit)" + remedy);
  if (header.channels != 1 && header.channels != 3 && header.channels != 4) {
    throw DataError("JPEG files with " + std::to_string(header.channels) + " components" + remedy);
  }
}

}  // namespace

int exif_orientation(FileBytes tiff) {
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::uint32_t kShort = 3;
  const bool is_little = has_text(tiff, 0, "II", 2);
  if (!is_little && !has_text(tiff, 0, "MM", 2)) return 1;
  const auto number = [&](std::size_t offset, int count) {
    return is_little ? little_endian(tiff, offset, count) : big_endian(tiff, offset, count);
  };
  try {
    const std::size_t directory = number(4, 4);
    const std::uint32_t entries = number(directory, 2);
    for (std::uint32_t i = 0; i < entries; ++i) {
      const std::size_t entry = directory + 2 + std::size_t{12} * i;
      if (number(entry, 2) != kOrientation) continue;
      const std::uint32_t value = number(entry + 2, 2) == kShort ? number(entry + 8, 2) : 1;
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  } catch (const DataError&) {
    return 1;  // damaged EXIF data: other programs ignore them too
  }
  return 1;
}

ImageHeader read_jpeg_header(FileBytes file) {
  ImageHeader header{.format = ImageFormat::jpeg};
  std::size_t at = 2;  // after the start marker
  while (true) {
    // Other bytes before a marker, and any number of 0xFF, are skipped as libjpeg does.
    while (big_endian(file, at, 1) != 0xFF) ++at;
    while (big_endian(file, at, 1) == 0xFF) ++at;
    const unsigned marker = big_endian(file, at, 1);
    ++at;
    if (marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;  // without a length
    if (marker == 0xD9 || marker == 0xDA) throw DataError("the JPEG file has no header; replace the file");
    const std::size_t length = big_endian(file, at, 2);
    if (length < 2) throw DataError("the JPEG header is damaged; replace the file");
    if (marker == 0xE1 && length >= 2 + kExifNameSize && at + length <= file.size() &&
        has_text(file, at + 2, "Exif\0\0", kExifNameSize)) {
      header.orientation = exif_orientation(file.subspan(at + 2 + kExifNameSize, length - 2 - kExifNameSize));
    }
    if (is_frame(marker)) {
      read_frame(file, at + 2, marker, header);
      return header;
    }
    at += length;
  }
}

}  // namespace lockstep::data
