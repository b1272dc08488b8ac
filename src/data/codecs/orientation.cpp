// SPDX-License-Identifier: BSD-3-Clause
// The orientation in the metadata of an image, by the rules of Pillow's exif_transpose.
#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "data/codecs/codecs.hpp"

namespace lockstep::data {

namespace {

constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::size_t kInlineBytes = 4;                 // a longer value stands elsewhere
constexpr std::size_t kMaxText = std::size_t{1} << 20;  // decompressed; Pillow's limit
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
    switch (type) {
      case 3:  // SHORT, and with a sign SSHORT
      case 8:
        return integer(offset, 2);
      case 4:  // LONG, SLONG, IFD
      case 9:
      case 13:
        return integer(offset, 4);
      case 6:  // SBYTE
        return integer(offset, 1);
      case 5:  // RATIONAL, SRATIONAL
      case 10:
        return ratio(integer(offset, 4), integer(offset + 4, 4));
      case 11:
        return std::bit_cast<float>(integer(offset, 4));
      case 12:
        return std::bit_cast<double>(long_integer(offset));
      case 16:
        return static_cast<double>(long_integer(offset));
      default:
        return 1;
    }
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

std::vector<std::byte> inflated(FileBytes stream) {
  std::vector<std::byte> text(std::min(kMaxText, std::max<std::size_t>(1024, 32 * stream.size())));
  z_stream state{};
  if (inflateInit(&state) != Z_OK) return {};
  state.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stream.data()));
  state.avail_in = static_cast<uInt>(stream.size());
  state.next_out = reinterpret_cast<Bytef*>(text.data());
  state.avail_out = static_cast<uInt>(text.size());
  inflate(&state, Z_FINISH);  // an incomplete text is as good as none
  text.resize(state.total_out);
  inflateEnd(&state);
  return text;
}

std::vector<std::byte> bytes_of_hex(FileBytes text) {
  std::vector<std::byte> bytes;
  int high = -1;
  for (const std::byte each : text) {
    const char c = static_cast<char>(each);
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) continue;
    if (high >= 0) bytes.push_back(static_cast<std::byte>(high << 4 | digit));
    high = high >= 0 ? -1 : digit;
  }
  return bytes;
}

}  // namespace lockstep::data
