// SPDX-License-Identifier: BSD-3-Clause
#include "data/codecs/decode.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/text/text.hpp"
#include "data/codecs/codecs.hpp"
#include "data/image/color.hpp"
#include "data/image/geometry.hpp"

namespace lockstep::data {

namespace {

// The orientation in the metadata of an image, by the rules of Pillow's exif_transpose.

constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::size_t kInlineBytes = 4;  // a longer value stands elsewhere
constexpr std::string_view kTag = "tiff:Orientation";

/// Bytes of the types of TIFF, from BYTE on; 0 = there is no such type.
constexpr std::array<std::size_t, 17> kTypeSizes = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};

/// The numbers in EXIF data, in their order of bytes.
class ExifNumbers {
 public:
  /// @param exif  from the TIFF header on
  ExifNumbers(FileBytes exif, bool is_little) : exif_(exif), is_little_(is_little) {}

  std::uint32_t integer(std::size_t offset, int count) const {
    return is_little_ ? little_endian(exif_, offset, count) : big_endian(exif_, offset, count);
  }
  std::uint64_t long_integer(std::size_t offset) const {
    const std::uint64_t first = integer(offset, 4);
    const std::uint64_t second = integer(offset + 4, 4);
    return is_little_ ? second << 32 | first : first << 32 | second;
  }

  /// A number of any type as Pillow compares it with orientations; 1 for texts and bytes.
  double number(std::size_t offset, std::uint32_t type) const {
    if (type == 3 || type == 8) return integer(offset, 2);                // SHORT, and with a sign SSHORT
    if (type == 4 || type == 9 || type == 13) return integer(offset, 4);  // LONG, SLONG, IFD
    if (type == 6) return integer(offset, 1);                             // SBYTE
    if (type == 5 || type == 10) return ratio(integer(offset, 4), integer(offset + 4, 4));  // RATIONAL, SRATIONAL
    if (type == 11) return std::bit_cast<float>(integer(offset, 4));
    if (type == 12) return std::bit_cast<double>(long_integer(offset));
    return type == 16 ? static_cast<double>(long_integer(offset)) : 1;
  }

 private:
  static double ratio(std::uint32_t above, std::uint32_t below) {
    return below == 0 ? 0 : static_cast<double>(above) / below;
  }

  FileBytes exif_;
  bool is_little_;
};

std::string_view text_of(FileBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

int valid(double orientation) {
  const bool is_valid = orientation >= 1 && orientation <= 8 && orientation == std::floor(orientation);
  return is_valid ? static_cast<int>(orientation) : 1;
}

struct FormatRow {
  ImageFormat format;
  const char* name;
  ImageHeader (*read_header)(FileBytes);
  void (*decode)(FileBytes, const ImageHeader&, Image&);  ///< null: JPEG, which keeps its state
};

constexpr std::array<FormatRow, 5> kFormats = {{
    {ImageFormat::jpeg, "JPEG", read_jpeg_header, nullptr},
    {ImageFormat::png, "PNG", read_png_header, decode_png},
    {ImageFormat::ppm, "PPM", read_ppm_header, decode_ppm},
    {ImageFormat::bmp, "BMP", read_bmp_header, decode_bmp},
    {ImageFormat::webp, "WebP", read_webp_header, decode_webp},
}};

const FormatRow& row_of(ImageFormat format) {
  return *std::find_if(kFormats.begin(), kFormats.end(), [&](const FormatRow& row) { return row.format == format; });
}

/// The name of a format that is known, but not supported; empty for anything else.
std::string unsupported_name(FileBytes file) {
  if (has_text(file, 0, "II*\0", 4) || has_text(file, 0, "MM\0*", 4)) return "TIFF";
  if (has_text(file, 0, "GIF8", 4)) return "GIF";
  if (has_text(file, 0, "\0\0\0\x0CjP  ", 8)) return "JPEG 2000";
  if (has_text(file, 0, "\xFF\x0A", 2) || has_text(file, 0, "\0\0\0\x0CJXL ", 8)) return "JPEG XL";
  for (const char* plain : {"P1", "P2", "P3", "P4", "P7"}) {
    if (has_text(file, 0, plain, 2)) return std::string("PNM (") + plain + ")";
  }
  if (!has_text(file, 4, "ftyp", 4)) return "";
  for (const char* brand : {"avif", "avis"}) {
    if (has_text(file, 8, brand, 4)) return "AVIF";
  }
  for (const char* brand : {"heic", "heix", "hevc", "heim", "heis", "mif1", "msf1"}) {
    if (has_text(file, 8, brand, 4)) return "HEIC";
  }
  return "";
}

ImageFormat format_of(FileBytes file) {
  if (file.empty()) throw DataError("the file is empty; replace the file or exclude it");
  if (has_text(file, 0, "\xFF\xD8\xFF", 3)) return ImageFormat::jpeg;
  if (has_text(file, 0, "\x89PNG\r\n\x1A\n", 8)) return ImageFormat::png;
  if (has_text(file, 0, "P5", 2) || has_text(file, 0, "P6", 2)) return ImageFormat::ppm;
  if (has_text(file, 0, "BM", 2)) return ImageFormat::bmp;
  if (has_text(file, 0, "RIFF", 4) && has_text(file, 8, "WEBP", 4)) return ImageFormat::webp;
  const std::string name = unsupported_name(file);
  if (name.empty()) {
    throw DataError("the file is not an image of a supported format (JPEG, PNG, PPM, PGM, BMP, WebP); exclude it");
  }
  throw DataError(name + " images are not supported; convert them, for example with 'mogrify -format png FILE'");
}

void check_size(const ImageHeader& header, std::int64_t max_bytes) {
  const std::string size = std::to_string(header.width) + " x " + std::to_string(header.height);
  if (header.width < 1 || header.height < 1) {
    throw DataError("the header states a size of " + size + " pixels; replace the file or exclude it");
  }
  // Computed in double, because the product of two sizes of 31 bits and 3 exceeds 63 bits.
  const double bytes = 3.0 * header.width * header.height;
  if (bytes > static_cast<double>(max_bytes)) {
    throw DataError("the header states a size of " + size + " pixels, which require " + number_text(bytes, 19) +
                    " bytes, more than data.max_image_mb = " + mb_text(max_bytes) +
                    "; exclude the file or raise the limit");
  }
}

/// Decodes without regard to the wanted number of channels.
int decode_native(FileBytes file, const ImageHeader& header, const DecodeOptions& options, Image& image,
                  Workspace& workspace) {
  const bool turns = options.applies_orientation && header.orientation != 1;
  const ImageSize size = reduced_size(header.size(), options.reduction);
  const ImageSize turned_size = turns ? reduced_size(header.oriented_size(), options.reduction) : size;
  const Box part = options.part.value_or(whole(turned_size));
  const bool is_jpeg = header.format == ImageFormat::jpeg;
  const bool skips = is_jpeg && options.decodes_only_the_part && !turns && !header.is_progressive;
  const Box decoded = skips ? part : whole(size);
  int warnings = 0;
  if (is_jpeg) {
    if (!workspace.decoders) workspace.decoders = std::make_unique<Workspace::Decoders>();
    warnings = workspace.decoders->jpeg.decode(file, header, options.reduction, decoded, image, workspace.rows);
  } else {
    row_of(header.format).decode(file, header, image);
  }
  if (turns) apply_orientation(image, header.orientation, workspace.spare);
  if (!skips && part != whole(turned_size)) crop(image, part, workspace.spare);
  return warnings;
}

}  // namespace

std::optional<int> exif_orientation(FileBytes exif) {
  while (has_text(exif, 0, kExifName.data(), kExifName.size())) exif = exif.subspan(kExifName.size());
  const bool is_little = has_text(exif, 0, "II", 2);
  if (!is_little && !has_text(exif, 0, "MM", 2)) return std::nullopt;
  const ExifNumbers numbers(exif, is_little);
  try {
    const std::size_t directory = numbers.integer(4, 4);
    const std::uint32_t entries = numbers.integer(directory, 2);
    for (std::uint32_t i = 0; i < entries; ++i) {
      const std::size_t entry = directory + 2 + std::size_t{12} * i;
      const std::uint32_t type = numbers.integer(entry + 2, 2);
      const std::size_t bytes = type < kTypeSizes.size() ? kTypeSizes[type] * numbers.integer(entry + 4, 4) : 0;
      const std::uint32_t value = numbers.integer(entry + 8, 4);
      if (numbers.integer(entry, 2) != kOrientation || bytes == 0) continue;
      return valid(numbers.number(bytes > kInlineBytes ? value : entry + 8, type));
    }
  } catch (const DataError&) {  // other programs also ignore the rest of damaged metadata
  }
  return std::nullopt;
}

std::optional<int> xmp_orientation(FileBytes xmp) {
  const std::string_view text = text_of(xmp);
  for (std::size_t position = text.find(kTag); position != std::string_view::npos;
       position = text.find(kTag, position + 1)) {
    const std::string_view rest = text.substr(position + kTag.size());
    const std::size_t start = rest.starts_with("=\"") ? 2 : rest.starts_with('>') ? 1 : 0;
    if (start > 0 && rest.size() > start && rest[start] >= '0' && rest[start] <= '9') {
      return valid(rest[start] - '0');
    }
  }
  return std::nullopt;
}

int Metadata::orientation() const {
  if (const auto found = exif_orientation(exif)) return *found;
  return xmp_orientation(xmp).value_or(1);
}

Workspace::Workspace() = default;
Workspace::~Workspace() = default;

std::uint32_t big_endian(FileBytes file, std::size_t offset, int count) {
  if (offset > file.size() || static_cast<std::size_t>(count) > file.size() - offset) {
    throw DataError("the file ends within its header; it is truncated, replace it or exclude it");
  }
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | std::to_integer<std::uint32_t>(file[offset + i]);
  return value;
}

std::uint32_t little_endian(FileBytes file, std::size_t offset, int count) {
  const std::uint32_t value = big_endian(file, offset, count);
  return count == 2 ? (value >> 8 | (value & 0xFF) << 8) : count == 4 ? __builtin_bswap32(value) : value;
}

bool has_text(FileBytes file, std::size_t offset, const char* text, std::size_t size) {
  return offset <= file.size() && size <= file.size() - offset && std::memcmp(file.data() + offset, text, size) == 0;
}

std::string name_of(ImageFormat format) { return row_of(format).name; }

ImageSize reduced_size(ImageSize size, int reduction) {
  return {(size.height + reduction - 1) / reduction, (size.width + reduction - 1) / reduction};
}

std::string mb_text(std::int64_t bytes) { return number_text(static_cast<double>(bytes) / (1 << 20)); }

ImageHeader read_image_header(std::span<const std::byte> file, std::int64_t max_bytes) {
  const ImageHeader header = row_of(format_of(file)).read_header(file);
  check_size(header, max_bytes);
  return header;
}

void decode_mask(std::span<const std::byte> file, const ImageHeader& header, Image& mask) {
  const bool has_one_channel = header.channels == 1 || header.is_palette;
  const bool is_accepted = header.format == ImageFormat::png || header.format == ImageFormat::ppm;
  if (!is_accepted || !has_one_channel || header.bits > 8) {
    throw DataError("the mask is a " + name_of(header.format) + " file with " +
                    (has_one_channel ? "one channel" : std::to_string(header.channels) + " channels") + " of " +
                    std::to_string(header.bits) +
                    " bits, but masks are PNG or PGM files with one channel (gray or palette) of up to 8 bits; convert "
                    "the file");
  }
  header.format == ImageFormat::png ? decode_png_numbers(file, header, mask) : decode_ppm(file, header, mask);
}

int decode_image(std::span<const std::byte> file, const ImageHeader& header, const DecodeOptions& options, Image& image,
                 Workspace& workspace) {
  const int warnings = decode_native(file, header, options, image, workspace);
  set_channels(image, options.channels, workspace.spare);
  return warnings;
}

}  // namespace lockstep::data
