// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "data/codecs/codecs.hpp"

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

}  // namespace

ImageHeader read_jpeg_header(FileBytes file) {
  ImageHeader header{.format = ImageFormat::jpeg};
  read_frame_header(file, header);
  header.orientation = jpeg_orientation(file);
  return header;
}

}  // namespace lockstep::data
