// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/codecs/codecs.hpp"
// libjpeg's headers do not include what they need.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep::data {

namespace {

constexpr std::size_t kFirstSegment = 2;  // position after the start marker
constexpr std::string_view kXmpName("http://ns.adobe.com/xap/1.0/\0", 29);

/// A start-of-frame marker, which states the size and the kind of coding.
bool is_frame(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

void read_frame(FileBytes file, std::size_t position, unsigned marker, ImageHeader& header) {
  const unsigned kind = marker & 3U;  // 0 baseline, 1 extended, 2 progressive, 3 lossless
  header.bits = static_cast<int>(big_endian(file, position, 1));
  header.height = static_cast<int>(big_endian(file, position + 1, 2));
  header.width = static_cast<int>(big_endian(file, position + 3, 2));
  header.channels = static_cast<int>(big_endian(file, position + 5, 1));
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

/// A segment of the header.
struct Segment {
  unsigned marker = 0;
  std::size_t begin = 0;  ///< position of its content
  std::size_t end = 0;
};

/// The next segment with a length from `position`, which becomes its end.
Segment next_segment(FileBytes file, std::size_t& position) {
  while (true) {
    // Other bytes before a marker, and any number of 0xFF, are skipped as libjpeg does.
    while (big_endian(file, position, 1) != 0xFF) ++position;
    while (big_endian(file, position, 1) == 0xFF) ++position;
    const unsigned marker = big_endian(file, position, 1);
    ++position;
    if (marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;  // these markers have no length
    if (marker == 0xD9 || marker == 0xDA) return {.marker = marker, .begin = position, .end = position};
    const std::size_t length = big_endian(file, position, 2);
    if (length < 2) throw DataError("the JPEG header is damaged; replace the file");
    const Segment segment{.marker = marker, .begin = position + 2, .end = position + length};
    position = segment.end;
    return segment;
  }
}

void read_frame_header(FileBytes file, ImageHeader& header) {
  for (std::size_t position = kFirstSegment;;) {
    const Segment segment = next_segment(file, position);
    if (segment.marker == 0xD9 || segment.marker == 0xDA) {
      throw DataError("the JPEG file has no header; replace the file");
    }
    if (is_frame(segment.marker)) return read_frame(file, segment.begin, segment.marker, header);
  }
}

/// Metadata can stand anywhere before the pixels. EXIF data can have several segments, of XMP the last one counts.
int jpeg_orientation(FileBytes file) {
  Metadata metadata;
  std::vector<std::byte> joined;
  try {
    for (std::size_t position = kFirstSegment;;) {
      const Segment segment = next_segment(file, position);
      if (segment.marker == 0xD9 || segment.marker == 0xDA) break;
      if (segment.marker != 0xE1 || segment.end > file.size()) continue;
      const FileBytes content = file.subspan(segment.begin, segment.end - segment.begin);
      if (has_text(content, 0, kXmpName.data(), kXmpName.size())) metadata.xmp = content.subspan(kXmpName.size());
      if (!has_text(content, 0, kExifName.data(), kExifName.size())) continue;
      if (metadata.exif.empty()) {
        metadata.exif = content;
        continue;
      }
      if (joined.empty()) joined.assign(metadata.exif.begin(), metadata.exif.end());
      const FileBytes rest = content.subspan(kExifName.size());
      joined.insert(joined.end(), rest.begin(), rest.end());
      metadata.exif = joined;
    }
  } catch (const DataError&) {  // the decoder reports damage after the frame header
  }
  return metadata.orientation();
}

constexpr int kMaxScans = 500;  // limit for progressive files; each scan costs time, and a hostile file can have many
constexpr int kRowsAtOnce = 8;

/// One decoding, in plain types: the function that runs it is left by longjmp.
struct JpegJob {
  const unsigned char* bytes;
  std::size_t size;
  int height, width, components;  // values in the header
  bool is_progressive;
  int reduction;
  Box part;              // part of the reduced image
  std::uint8_t* pixels;  // part.height x part.width x (1 or 3)
  std::uint8_t* rows;    // kRowsAtOnce rows of 4 bytes for each column
};

/// Pillow's conversion of inverted CMYK pixels to RGB.
void cmyk_to_rgb(const std::uint8_t* cmyk, std::size_t pixels, std::uint8_t* rgb) {
  for (std::size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      const int product = cmyk[c] * cmyk[3] + 128;
      rgb[c] = static_cast<std::uint8_t>((product + (product >> 8)) >> 8);
    }
  }
}

/// Whether the image data end: the file has an end marker after this position.
bool has_end_marker(const unsigned char* begin, std::size_t size) {
  while (size >= 2) {
    const auto* last = static_cast<const unsigned char*>(memrchr(begin, 0xD9, size));
    if (last == nullptr || last == begin) return false;
    if (last[-1] == 0xFF) return true;
    size = static_cast<std::size_t>(last - begin);
  }
  return false;
}

}  // namespace

ImageHeader read_jpeg_header(FileBytes file) {
  ImageHeader header{.format = ImageFormat::jpeg};
  read_frame_header(file, header);
  header.orientation = jpeg_orientation(file);
  return header;
}

struct JpegDecoder::State {
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct info{};
  std::jmp_buf leave{};
  char message[JMSG_LENGTH_MAX] = "";
  bool is_truncated = false;
  int warnings = 0;

  static State& of(j_common_ptr info) { return *static_cast<State*>(info->client_data); }

  [[noreturn]] static void on_error(j_common_ptr info) {
    info->err->format_message(info, of(info).message);
    std::longjmp(of(info).leave, 1);
  }

  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;  // a trace
    ++of(info).warnings;
    if (info->err->msg_code == JWRN_JPEG_EOF) of(info).is_truncated = true;
  }

  static void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) fail(info, "it has too many scans");
  }

  [[noreturn]] static void fail(j_common_ptr info, const char* reason) {
    std::snprintf(of(info).message, sizeof of(info).message, "%s", reason);
    std::longjmp(of(info).leave, 1);
  }

  j_common_ptr common() { return reinterpret_cast<j_common_ptr>(&info); }

  /// Whether libjpeg's object exists. No C++ object lives in the functions that longjmp leaves.
  bool create() {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    info.client_data = this;
    if (setjmp(leave) != 0) return false;
    jpeg_create_decompress(&info);
    info.client_data = this;  // which jpeg_create_decompress keeps, but does not promise to
    progress.progress_monitor = on_progress;
    info.progress = &progress;
    return true;
  }

  bool run(const JpegJob* job) {
    if (setjmp(leave) != 0) {
      jpeg_abort_decompress(&info);
      return false;
    }
    is_truncated = false;
    warnings = 0;
    jpeg_mem_src(&info, job->bytes, job->size);
    jpeg_read_header(&info, TRUE);
    if (static_cast<int>(info.image_width) != job->width || static_cast<int>(info.image_height) != job->height ||
        info.num_components != job->components) {
      fail(common(), "it has several headers");
    }
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(job->reduction);
    info.out_color_space = job->components == 1 ? JCS_GRAYSCALE : job->components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info);
    if (!job->is_progressive && !has_end_marker(info.src->next_input_byte, info.src->bytes_in_buffer)) {
      is_truncated = true;
      fail(common(), "the end of the image is missing");
    }
    read_part(job);
    if (is_truncated) fail(common(), "the end of the image is missing");
    if (info.output_scanline < info.output_height) {
      jpeg_abort_decompress(&info);
    } else {
      jpeg_finish_decompress(&info);
    }
    return true;
  }

  /// Rows and columns outside the part are left out where the format allows it. The results are those of a complete
  /// decoding, because a margin of one pixel covers the interpolation of colors.
  void read_part(const JpegJob* job) {
    const Box& part = job->part;
    const int full_width = static_cast<int>(info.output_width);
    JDIMENSION first_column = 0;
    if (!job->is_progressive && part.width < full_width) {
      const int left = std::max(0, part.left - 1);
      first_column = static_cast<JDIMENSION>(left);
      auto columns = static_cast<JDIMENSION>(std::min(full_width, part.left + part.width + 1) - left);
      jpeg_crop_scanline(&info, &first_column, &columns);
    }
    const int margin = std::min(1, part.top);
    if (part.top > margin) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(part.top - margin));
    read_rows(job, margin, static_cast<std::size_t>(part.left) - first_column);
  }

  void read_rows(const JpegJob* job, int margin, std::size_t skipped_columns) {
    const auto components = static_cast<std::size_t>(job->components);
    const std::size_t row_bytes = info.output_width * components;
    const auto width = static_cast<std::size_t>(job->part.width);
    const std::size_t out_bytes = width * (job->components == 1 ? 1 : 3);
    JSAMPROW rows[kRowsAtOnce];
    for (int i = 0; i < kRowsAtOnce; ++i) rows[i] = job->rows + static_cast<std::size_t>(i) * row_bytes;
    std::uint8_t* out = job->pixels;
    for (int row = -margin; row < job->part.height;) {
      const int wanted = std::min(kRowsAtOnce, job->part.height - row);
      const auto count = static_cast<int>(jpeg_read_scanlines(&info, rows, static_cast<JDIMENSION>(wanted)));
      if (count == 0) fail(common(), "it has too few rows");
      for (int i = 0; i < count; ++i, ++row) {
        if (row < 0) continue;
        const std::uint8_t* const from = rows[i] + skipped_columns * components;
        if (job->components == 4) {
          cmyk_to_rgb(from, width, out);
        } else {
          std::memcpy(out, from, out_bytes);
        }
        out += out_bytes;
      }
    }
  }
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  if (!state_->create()) throw DataError(std::string("libjpeg cannot be used: ") + state_->message);
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

int JpegDecoder::decode(FileBytes file, const ImageHeader& header, int reduction, const Box& part, Image& image,
                        Buffer<std::uint8_t>& rows) {
  image.reshape(part.size(), header.channels == 1 ? 1 : 3);
  rows.resize(static_cast<std::size_t>(header.width) * 4 * kRowsAtOnce);
  const JpegJob job{.bytes = reinterpret_cast<const unsigned char*>(file.data()),
                    .size = file.size(),
                    .height = header.height,
                    .width = header.width,
                    .components = header.channels,
                    .is_progressive = header.is_progressive,
                    .reduction = reduction,
                    .part = part,
                    .pixels = image.pixels.data(),
                    .rows = rows.data()};
  if (state_->run(&job)) return state_->warnings;
  if (state_->is_truncated) throw DataError("the JPEG file is truncated; replace the file or exclude it");
  throw DataError(std::string("the JPEG data are damaged (") + state_->message + "); replace the file or exclude it");
}

}  // namespace lockstep::data
