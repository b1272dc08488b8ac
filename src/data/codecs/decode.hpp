// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>
#include <lockstep/data/transform.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep::data {

enum class ImageFormat { jpeg, png, ppm, bmp, webp };

/// "JPEG", "PNG", ...
std::string name_of(ImageFormat format);

/// Facts from the first bytes of an encoded image.
struct ImageHeader {
  ImageFormat format = ImageFormat::jpeg;
  int height = 0;  ///< height as stored, without EXIF orientation
  int width = 0;
  int channels = 3;     ///< 1 gray, 2 gray and alpha, 3 RGB or palette, 4 RGB and alpha, or CMYK (JPEG)
  int bits = 8;         ///< per channel
  int orientation = 1;  ///< EXIF orientation, 1 to 8; 1 = upright or not given
  bool is_progressive = false;
  bool is_palette = false;  ///< PNG: pixels are numbers of colors

  ImageSize size() const noexcept { return {height, width}; }
  /// The size after its orientation is applied.
  ImageSize oriented_size() const noexcept { return orientation >= 5 ? ImageSize{width, height} : size(); }
};

/// The default of `data.max_image_mb`.
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{512} << 20;
/// "512" for 512 MiB, for messages about data.max_image_mb.
std::string mb_text(std::int64_t bytes);

/// Reads the header of an image. The content alone determines the format; no memory is requested.
/// @param max_bytes  maximum of height * width * 3
/// @throws DataError  damaged, unsupported, or larger than max_bytes; the message does not contain a file name
ImageHeader read_image_header(std::span<const std::byte> file, std::int64_t max_bytes = kMaxImageBytes);

struct DecodeOptions {
  int channels = 3;                   ///< 1 (luminance) or 3 (RGB)
  std::optional<Box> part = {};       ///< part of the reduced and oriented image; none = everything
  int reduction = 1;                  ///< 1, 2, 4 or 8: JPEG only, decodes to ceil(size / reduction)
  bool applies_orientation = false;   ///< turns the image as its EXIF orientation states
  bool decodes_only_the_part = true;  ///< false = the reference: decodes everything, then cuts
};

/// Decodes an image, exactly like Pillow: without color profiles and gamma, alpha is dropped. 16 bits are reduced to
/// the upper 8.
/// @param header  of the same bytes
/// @param image   [part.height, part.width, channels]
/// @return  number of warnings about damaged data that were tolerated
/// @throws DataError  the data are damaged or truncated; the message does not contain a file name
int decode_image(std::span<const std::byte> file, const ImageHeader& header, const DecodeOptions& options, Image& image,
                 Workspace& workspace);

/// Decodes a mask: the stored numbers of a PNG or PGM file with one channel of up to 8 bits. Those of a palette are the
/// numbers of its colors, and fewer than 8 bits are not scaled.
/// @param header  of the same bytes
/// @param mask    [height, width, 1]
/// @throws DataError  the file has another format, or is damaged; the message does not contain a file name
void decode_mask(std::span<const std::byte> file, const ImageHeader& header, Image& mask);

/// ceil(size / reduction) in both dimensions.
ImageSize reduced_size(ImageSize size, int reduction);

}  // namespace lockstep::data
