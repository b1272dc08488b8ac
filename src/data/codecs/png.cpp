// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/codecs/codecs.hpp"

namespace lockstep::data {

namespace {

constexpr std::size_t kSignatureSize = 8;
constexpr std::string_view kExifKeyword = "exif";
constexpr std::string_view kRawProfile = "Raw profile type exif";
constexpr std::string_view kXmpKeyword = "XML:com.adobe.xmp";
constexpr std::size_t kMaxText = std::size_t{1} << 20;    // decompressed; Pillow's limit
constexpr std::size_t kHeaderChunk = kSignatureSize + 8;  // content of the first chunk, after its length and name

/// One decoding, in plain types: the functions that use libpng are left by longjmp.
struct PngJob {
  const png_byte* bytes;
  std::size_t size;
  std::size_t position;
  int height, width, channels;  // channels of the result
  bool wants_numbers;           // instead of colors
  png_bytepp rows;
  std::jmp_buf leave;
  char message[200];
};

[[noreturn]] void on_png_error(png_structp png, png_const_charp message) {
  auto* job = static_cast<PngJob*>(png_get_error_ptr(png));
  std::snprintf(job->message, sizeof job->message, "%s", message);
  std::longjmp(job->leave, 1);
}

void on_png_warning(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto* job = static_cast<PngJob*>(png_get_io_ptr(png));
  if (count > job->size - job->position) png_error(png, "the file is truncated");
  std::memcpy(out, job->bytes + job->position, count);
  job->position += count;
}

/// All kinds of pixels become 8 bits, gray or RGB, without alpha.
void set_conversions(png_structp png, png_infop info, bool wants_numbers) {
  const png_byte type = png_get_color_type(png, info);
  if (wants_numbers) {
    png_set_packing(png);
  } else {
    if (png_get_bit_depth(png, info) == 16) png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_alpha(png);
  }
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

void read_png(png_structp png, png_infop info, PngJob* job) {
  png_set_read_fn(png, job, read_png_bytes);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_user_limits(png, static_cast<png_uint_32>(job->width), static_cast<png_uint_32>(job->height));
  png_read_info(png, info);
  set_conversions(png, info, job->wants_numbers);
  const auto expected = static_cast<std::size_t>(job->width) * static_cast<std::size_t>(job->channels);
  if (png_get_image_height(png, info) != static_cast<png_uint_32>(job->height) ||
      png_get_rowbytes(png, info) != expected) {
    png_error(png, "it has several headers");
  }
  png_read_image(png, job->rows);
}

/// Whether it worked. No C++ object lives here.
bool run_png(PngJob* job) {
  png_structp volatile png = nullptr;
  png_infop volatile info = nullptr;
  if (setjmp(job->leave) != 0) {
    png_structp dead = png;
    png_infop dead_info = info;
    png_destroy_read_struct(&dead, &dead_info, nullptr);
    return false;
  }
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, job, on_png_error, on_png_warning);
  if (png == nullptr) return false;
  info = png_create_info_struct(png);
  if (info == nullptr) png_error(png, "no memory");
  read_png(png, info, job);
  png_structp done = png;
  png_infop done_info = info;
  png_destroy_read_struct(&done, &done_info, nullptr);
  return true;
}

/// Text that zlib has compressed, up to 1 MiB; less if it is damaged.
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

/// The bytes that pairs of hexadecimal digits stand for; other characters are skipped.
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

/// The text of a chunk tEXt, zTXt or iTXt. @return  empty = it has another keyword, or is damaged
std::vector<std::byte> text_in(const std::string& type, FileBytes chunk, std::string_view keyword) {
  if (!has_text(chunk, 0, keyword.data(), keyword.size() + 1)) return {};  // it ends with a zero byte
  FileBytes rest = chunk.subspan(keyword.size() + 1);
  if (type == "zTXt") return rest.empty() ? std::vector<std::byte>() : inflated(rest.subspan(1));
  if (type == "iTXt") {
    if (rest.size() < 2) return {};
    const bool is_compressed = rest[0] != std::byte{0};
    rest = rest.subspan(2);
    for (int words = 0; words < 2; ++words) {  // the language and the translated keyword
      const auto zero = std::find(rest.begin(), rest.end(), std::byte{0});
      if (zero == rest.end()) return {};
      rest = rest.subspan(static_cast<std::size_t>(zero - rest.begin()) + 1);
    }
    if (is_compressed) return inflated(rest);
  }
  return {rest.begin(), rest.end()};
}

/// EXIF data as ImageMagick writes them: an empty line, the name, the size, and lines of hexadecimal digits.
std::vector<std::byte> raw_profile(FileBytes text) {
  for (int lines = 0; lines < 3; ++lines) {
    const auto end = std::find(text.begin(), text.end(), std::byte{'\n'});
    if (end == text.end()) return {};
    text = text.subspan(static_cast<std::size_t>(end - text.begin()) + 1);
  }
  return bytes_of_hex(text);
}

/// Metadata can stand before and after the pixels. Of several, the last one counts.
int png_orientation(FileBytes file) {
  Metadata metadata;
  std::vector<std::byte> profile;
  std::vector<std::byte> xmp;
  for (std::size_t position = kSignatureSize; position + 8 <= file.size();) {
    const std::size_t length = big_endian(file, position, 4);
    if (length > file.size() - position - 8) break;
    const FileBytes chunk = file.subspan(position + 8, length);
    const std::string type(reinterpret_cast<const char*>(file.data()) + position + 4, 4);
    if (type == "IEND") break;
    if (type == "eXIf") metadata.exif = chunk;
    if (type == "tEXt" && has_text(chunk, 0, kExifKeyword.data(), kExifKeyword.size() + 1)) {
      metadata.exif = chunk.subspan(kExifKeyword.size() + 1);
    }
    if (type == "tEXt" || type == "zTXt" || type == "iTXt") {
      if (auto text = text_in(type, chunk, kRawProfile); !text.empty()) profile = raw_profile(text);
      if (auto text = text_in(type, chunk, kXmpKeyword); !text.empty()) xmp = std::move(text);
    }
    position += 12 + length;
  }
  if (metadata.exif.empty()) metadata.exif = profile;
  metadata.xmp = xmp;
  return metadata.orientation();
}

void decode_png_to(int channels, bool wants_numbers, FileBytes file, const ImageHeader& header, Image& image) {
  image.reshape(header.size(), channels);
  std::vector<png_bytep> rows(static_cast<std::size_t>(header.height));
  for (int y = 0; y < header.height; ++y) rows[static_cast<std::size_t>(y)] = image.row(y);
  PngJob job{.bytes = reinterpret_cast<const png_byte*>(file.data()),
             .size = file.size(),
             .position = 0,
             .height = header.height,
             .width = header.width,
             .channels = image.channels,
             .wants_numbers = wants_numbers,
             .rows = rows.data(),
             .leave = {},
             .message = "no memory"};
  if (run_png(&job)) return;
  throw DataError(std::string("the PNG data are damaged (") + job.message + "); replace the file or exclude it");
}

}  // namespace

ImageHeader read_png_header(FileBytes file) {
  ImageHeader header{.format = ImageFormat::png};
  if (!has_text(file, kSignatureSize + 4, "IHDR", 4)) throw DataError("the PNG header is damaged; replace the file");
  const std::uint32_t width = big_endian(file, kHeaderChunk, 4);
  const std::uint32_t height = big_endian(file, kHeaderChunk + 4, 4);
  if (width > 0x7FFFFFFF || height > 0x7FFFFFFF) throw DataError("the PNG header is damaged; replace the file");
  header.width = static_cast<int>(width);
  header.height = static_cast<int>(height);
  header.bits = static_cast<int>(big_endian(file, kHeaderChunk + 8, 1));
  const std::uint32_t type = big_endian(file, kHeaderChunk + 9, 1);
  header.is_palette = type == PNG_COLOR_TYPE_PALETTE;
  header.channels = type == PNG_COLOR_TYPE_GRAY ? 1 : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2 : type == 6 ? 4 : 3;
  header.orientation = png_orientation(file);
  return header;
}

void decode_png(FileBytes file, const ImageHeader& header, Image& image) {
  decode_png_to(header.channels <= 2 ? 1 : 3, false, file, header, image);
}

void decode_png_numbers(FileBytes file, const ImageHeader& header, Image& image) {
  decode_png_to(1, true, file, header, image);
}

}  // namespace lockstep::data
