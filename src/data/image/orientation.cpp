// SPDX-License-Identifier: BSD-3-Clause
// The orientation in the metadata of an image, by the rules of Pillow's exif_transpose.
#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "data/image/codecs.hpp"

namespace lockstep::data {

namespace {

constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::size_t kMaxText = std::size_t{1} << 20;  // decompressed; Pillow's limit
constexpr std::string_view kTag = "tiff:Orientation";

/// Bytes of an integer type of TIFF; 0 = it is no integer type that can contain an orientation.
int integer_size(std::uint32_t type) {
  constexpr std::array<int, 14> kSizes = {0, 0, 0, 2, 4, 0, 1, 0, 2, 4, 0, 0, 0, 4};  // SHORT, LONG, S..., IFD
  return type < kSizes.size() ? kSizes[type] : 0;
}

std::string_view text_of(FileBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

int valid(std::uint32_t orientation) {
  return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
}

}  // namespace

std::optional<int> exif_orientation(FileBytes exif) {
  while (has_text(exif, 0, kExifName.data(), kExifName.size())) exif = exif.subspan(kExifName.size());
  const bool is_little = has_text(exif, 0, "II", 2);
  if (!is_little && !has_text(exif, 0, "MM", 2)) return std::nullopt;
  const auto number = [&](std::size_t offset, int count) {
    return is_little ? little_endian(exif, offset, count) : big_endian(exif, offset, count);
  };
  std::optional<int> found;
  try {
    const std::size_t directory = number(4, 4);
    const std::uint32_t entries = number(directory, 2);
    for (std::uint32_t i = 0; i < entries; ++i) {
      const std::size_t entry = directory + 2 + std::size_t{12} * i;
      if (number(entry, 2) != kOrientation) continue;
      const int size = integer_size(number(entry + 2, 2));
      found = size > 0 && number(entry + 4, 4) == 1 ? valid(number(entry + 8, size)) : 1;
    }
  } catch (const DataError&) {  // other programs also ignore the rest of damaged metadata
  }
  return found;
}

std::optional<int> xmp_orientation(FileBytes xmp) {
  const std::string_view text = text_of(xmp);
  for (std::size_t at = text.find(kTag); at != std::string_view::npos; at = text.find(kTag, at + 1)) {
    const std::string_view rest = text.substr(at + kTag.size());
    const std::size_t start = rest.starts_with("=\"") ? 2 : rest.starts_with('>') ? 1 : 0;
    if (start > 0 && rest.size() > start && rest[start] >= '0' && rest[start] <= '9') {
      return valid(static_cast<std::uint32_t>(rest[start] - '0'));
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
