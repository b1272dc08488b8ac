// SPDX-License-Identifier: BSD-3-Clause
// What each format provides to decode.cpp. Each codec writes gray pixels (1 channel) or RGB (3 channels), upright or
// not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "data/codecs/decode.hpp"

namespace lockstep::data {

/// Stands before EXIF data in JPEG files.
inline constexpr std::string_view kExifName("Exif\0\0", 6);

using FileBytes = std::span<const std::byte>;

/// A number of `count` bytes at `offset`. @throws DataError  beyond the end of the file
std::uint32_t big_endian(FileBytes file, std::size_t offset, int count);
std::uint32_t little_endian(FileBytes file, std::size_t offset, int count);
/// Whether the bytes at `offset` are this text.
bool has_text(FileBytes file, std::size_t offset, const char* text, std::size_t size);

/// The orientation (1 to 8, 1 if it is malformed) in EXIF data: a TIFF header, with or without "Exif\0\0" before it.
/// @return  nullopt = there is none
std::optional<int> exif_orientation(FileBytes exif);
/// The same in the XML of XMP.
std::optional<int> xmp_orientation(FileBytes xmp);
/// The metadata of an image; empty = there are none.
struct Metadata {
  FileBytes exif = {};
  FileBytes xmp = {};

  /// The orientation, 1 to 8: that of EXIF data, else that of XMP, else 1.
  int orientation() const;
};

ImageHeader read_jpeg_header(FileBytes file);
ImageHeader read_png_header(FileBytes file);
ImageHeader read_ppm_header(FileBytes file);
ImageHeader read_bmp_header(FileBytes file);
ImageHeader read_webp_header(FileBytes file);
/// Whether this build reads WebP files.
bool reads_webp() noexcept;

/// The state of libjpeg, which is reused.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Decodes a part of the reduced image. @return  number of warnings
  int decode(FileBytes file, const ImageHeader& header, int reduction, const Box& part, Image& image,
             Buffer<std::uint8_t>& rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct Workspace::Decoders {
  JpegDecoder jpeg;
};

void decode_png(FileBytes file, const ImageHeader& header, Image& image);
/// The stored numbers of a file with one channel of up to 8 bits, without their colors.
void decode_png_numbers(FileBytes file, const ImageHeader& header, Image& image);
void decode_ppm(FileBytes file, const ImageHeader& header, Image& image);
void decode_bmp(FileBytes file, const ImageHeader& header, Image& image);
void decode_webp(FileBytes file, const ImageHeader& header, Image& image);

}  // namespace lockstep::data
