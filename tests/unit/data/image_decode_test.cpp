// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "data/codecs/codecs.hpp"
#include "data/codecs/decode.hpp"
#include "data/image/geometry.hpp"
#include "reference/arrays.hpp"
#include "support/folders.hpp"
#include "support/reference.hpp"
#include "unit/data/jpeg_writer.hpp"
#include "unit/data/png_writer.hpp"

namespace lockstep::data {
namespace image_decode_test {

namespace fs = std::filesystem;
using testing::encode_jpeg;
using testing::JpegKind;
using testing::test_image;
using Bytes = std::vector<std::byte>;

bool equal(const Image& a, const Image& b) {
  return a.size() == b.size() && a.channels == b.channels &&
         std::equal(a.pixels.begin(), a.pixels.end(), b.pixels.begin(), b.pixels.end());
}

Image decode(const Bytes& bytes, const DecodeOptions& options, Workspace& workspace) {
  Image image;
  decode_image(bytes, read_image_header(bytes), options, image, workspace);
  return image;
}

std::string fault(const Bytes& bytes, const DecodeOptions& options = {}) {
  Workspace workspace;
  try {
    decode(bytes, options, workspace);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Box random_box(random::Sequence& random, ImageSize size) {
  const auto below = [&](int bound) { return static_cast<int>(random.below(static_cast<std::uint64_t>(bound))); };
  const int top = below(size.height);
  const int left = below(size.width);
  return {top, left, 1 + below(size.height - top), 1 + below(size.width - left)};
}

/// Compares `boxes` random parts with the parts of a complete decoding.
void expect_equal_parts(const Bytes& bytes, const std::string& name, int boxes, int reduction, random::Sequence& random,
                        Workspace& workspace) {
  const Image all = decode(bytes, {.reduction = reduction, .decodes_only_the_part = false}, workspace);
  for (int i = 0; i < boxes; ++i) {
    const Box box = random_box(random, all.size());
    Image expected = all;
    Image spare;
    crop(expected, box, spare);
    const Image part = decode(bytes, {.part = box, .reduction = reduction}, workspace);
    ASSERT_TRUE(equal(part, expected)) << name << " 1/" << reduction << " " << box.top << " " << box.left << " "
                                       << box.height << " " << box.width;
  }
}

const JpegKind kKinds[] = {{.name = "444", .horizontal = 1, .vertical = 1},
                           {.name = "422", .horizontal = 2, .vertical = 1},
                           {.name = "420"},
                           {.name = "440", .horizontal = 1, .vertical = 2},
                           {.name = "411", .horizontal = 4, .vertical = 1},
                           {.name = "gray", .channels = 1, .horizontal = 1, .vertical = 1},
                           {.name = "CMYK", .channels = 4, .horizontal = 1, .vertical = 1},
                           {.name = "progressive", .is_progressive = true},
                           {.name = "restart", .restart_rows = 1}};

TEST(ImageDecode, PartsAreThoseOfACompleteDecoding) {
  random::Sequence random(1, random::Stream::user, 1);
  Workspace workspace;
  for (const JpegKind& kind : kKinds) {
    for (const ImageSize size : {ImageSize{93, 131}, ImageSize{64, 48}, ImageSize{17, 200}}) {
      const Bytes bytes = encode_jpeg(test_image(size.height, size.width, kind.channels), kind);
      expect_equal_parts(bytes, kind.name, 40, 1, random, workspace);
    }
  }
}

TEST(ImageDecode, PartsOfReducedImagesAreThoseOfACompleteDecoding) {
  random::Sequence random(2, random::Stream::user, 1);
  Workspace workspace;
  for (const JpegKind& kind : kKinds) {
    const Bytes bytes = encode_jpeg(test_image(93, 131, kind.channels), kind);
    for (const int reduction : {2, 4, 8}) expect_equal_parts(bytes, kind.name, 15, reduction, random, workspace);
  }
}

TEST(ImageDecode, PartsOfGoldenFilesAreThoseOfACompleteDecoding) {
  const fs::path folder = testing::golden("data/images");
  if (!fs::is_directory(folder)) GTEST_SKIP() << "no reference data in " << folder;
  random::Sequence random(3, random::Stream::user, 1);
  Workspace workspace;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jpg") continue;
    ++files;
    expect_equal_parts(testing::reference::read_bytes(entry.path()), entry.path().filename(), 30, 1, random, workspace);
  }
  EXPECT_GE(files * 30, 1000) << "random boxes";
}

TEST(ImageDecode, ATruncatedJpegIsRefusedWhereverItEnds) {
  const Bytes bytes = encode_jpeg(test_image(40, 50, 3), kKinds[2]);
  for (std::size_t size = 0; size + 2 < bytes.size(); size += 7) {
    const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(fault(part), "") << size;
    EXPECT_NE(fault(part, {.part = Box{0, 0, 8, 8}}), "") << size;
  }
}

TEST(ImageDecode, DamagedFilesNeverCrash) {
  random::Sequence random(4, random::Stream::user, 1);
  Workspace workspace;
  for (const JpegKind& kind : kKinds) {
    const Bytes good = encode_jpeg(test_image(40, 50, kind.channels), kind);
    for (int i = 0; i < 40; ++i) {
      Bytes bad = good;
      for (int k = 0; k < 4; ++k) bad[random.below(bad.size())] = static_cast<std::byte>(random.below(256));
      try {
        const ImageHeader header = read_image_header(bad, 1 << 24);
        Image image;
        decode_image(bad, header, {.part = Box{0, 0, 1, 1}}, image, workspace);
      } catch (const DataError&) {
      }
    }
    EXPECT_TRUE(equal(decode(good, {}, workspace), decode(good, {.decodes_only_the_part = false}, workspace)))
        << "the decoder works after damaged files";
  }
}

TEST(ImageDecode, LimitsAreCheckedBeforeMemoryIsRequested) {
  const Bytes bytes = encode_jpeg(test_image(40, 50, 3), kKinds[2]);
  EXPECT_NO_THROW(read_image_header(bytes, 40 * 50 * 3));
  try {
    read_image_header(bytes, 40 * 50 * 3 - 1);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("50 x 40"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("data.max_image_mb"), std::string::npos) << error.what();
  }
}

TEST(ImageDecode, UnsupportedFormatsAreRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {std::string("II*\0", 4), "TIFF"},
      {std::string("MM\0*", 4), "TIFF"},
      {"GIF89a", "GIF"},
      {std::string("\0\0\0\x18", 4) + "ftypheic", "HEIC"},
      {std::string("\0\0\0\x18", 4) + "ftypavif", "AVIF"},
      {"P3\n1 1\n255\n1 2 3\n", "PNM"},
      {"\x7F"
       "ELF",
       "not an image"},
      {"", "empty"},
  };
  for (const auto& [content, word] : cases) {
    EXPECT_NE(fault(bytes_of(content)).find(word), std::string::npos) << word << ": " << fault(bytes_of(content));
  }
}

TEST(ImageDecode, PpmHeadersWithComments) {
  Workspace workspace;
  const Image image = decode(bytes_of("P6 # comment\n2\t1 # another\n255\nabcdef"), {}, workspace);
  EXPECT_EQ(image.size(), (ImageSize{1, 2}));
  EXPECT_EQ(std::string(image.pixels.begin(), image.pixels.end()), "abcdef");
  EXPECT_NE(fault(bytes_of("P6 2 1 65535\nabcdefabcdef")).find("65535"), std::string::npos);
  EXPECT_NE(fault(bytes_of("P6 2 1 255\nabcde")).find("truncated"), std::string::npos);
  EXPECT_NE(fault(bytes_of("P6 2")).find("truncated"), std::string::npos);
}

TEST(ImageDecode, OneChannelIsTheLuminance) {
  Workspace workspace;
  const Image image = decode(bytes_of("P6 2 1 255\n" + std::string("\xFF\0\0\0\xFF\0", 6)), {.channels = 1}, workspace);
  EXPECT_EQ(image.channels, 1);
  EXPECT_EQ(image.pixels[0], 76);   // (19595 * 255 + 32768) >> 16
  EXPECT_EQ(image.pixels[1], 150);  // (38470 * 255 + 32768) >> 16
  const Image gray = decode(bytes_of("P5 2 1 255\nab"), {.channels = 3}, workspace);
  EXPECT_EQ(std::string(gray.pixels.begin(), gray.pixels.end()), "aaabbb");
}

/// EXIF data with one entry of IFD 0, whose value has 4 bytes.
std::string exif_entry(char type, char count, const std::string& value, bool is_little = true) {
  if (is_little) {
    return std::string("II*\0\x08\0\0\0\x01\0\x12\x01", 12) + type + std::string("\0", 1) + count +
           std::string("\0\0\0", 3) + value;
  }
  return std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0", 13) + type + std::string("\0\0\0", 3) + count + value;
}

/// The same with one value of 8 bytes, which does not fit the entry.
std::string exif_entry_elsewhere(char type, const std::string& value) {
  const std::string zeros(4, '\0');
  return exif_entry(type, 1, "\x1A" + zeros.substr(1)) + zeros + value;
}

std::string exif_of(char orientation) { return exif_entry(3, 1, {orientation, '\0', '\0', '\0'}); }

std::string xmp_of(char digit, bool is_attribute = true) {
  const std::string tag = "tiff:Orientation";
  return "<rdf:Description " +
         (is_attribute ? tag + "=\"" + digit + "\"/>" : "><" + tag + ">" + digit + "</" + tag + ">");
}

// The entry has any type of numbers; the first counts. Damage, texts and bytes leave an image upright.
TEST(ImageDecode, OrientationIsThatOfTheExifData) {
  const std::string little = exif_of(6);
  EXPECT_EQ(exif_orientation(bytes_of(little)), 6);
  EXPECT_EQ(exif_orientation(bytes_of(std::string("Exif\0\0", 6) + little)), 6);
  EXPECT_EQ(exif_orientation(bytes_of(exif_entry(4, 1, {'\6', '\0', '\0', '\0'}))), 6);
  EXPECT_EQ(exif_orientation(bytes_of(exif_entry(3, 1, {'\0', '\x8', '\0', '\0'}, false))), 8);
  EXPECT_EQ(exif_orientation(bytes_of(exif_entry(4, 1, {'\0', '\0', '\0', '\x8'}, false))), 8);
  EXPECT_EQ(exif_orientation(bytes_of(exif_entry(3, 2, {'\6', '\0', '\3', '\0'}))), 6);  // two numbers
  EXPECT_EQ(exif_orientation(bytes_of(exif_entry(11, 1, {'\0', '\0', '\xC0', '\x40'}))), 6);
  for (const char type : {'\1', '\2', '\7'}) {
    EXPECT_EQ(exif_orientation(bytes_of(exif_entry(type, 1, {'\6', '\0', '\0', '\0'}))), 1) << int{type};
  }
  for (const char type : {'\0', '\x0E', '\x11'}) {
    EXPECT_EQ(exif_orientation(bytes_of(exif_entry(type, 1, {'\6', '\0', '\0', '\0'}))), std::nullopt) << int{type};
  }
  EXPECT_EQ(exif_orientation(bytes_of(exif_entry(3, 0, {'\6', '\0', '\0', '\0'}))), std::nullopt);
  EXPECT_EQ(exif_orientation(bytes_of(exif_of(9))), 1);
  for (std::size_t size = 0; size < little.size(); ++size) {
    EXPECT_EQ(exif_orientation(bytes_of(little.substr(0, size))), std::nullopt);
  }
}

TEST(ImageDecode, OrientationOfEightBytesIsOutsideOfItsEntry) {
  struct Wide {
    char type;
    std::string value;
    std::optional<int> orientation;
  };
  const Wide cases[] = {{5, std::string("\6\0\0\0\1\0\0\0", 8), 6},      {10, std::string("\x10\0\0\0\2\0\0\0", 8), 8},
                        {5, std::string("\x0D\0\0\0\2\0\0\0", 8), 1},    {5, std::string("\6\0\0\0\0\0\0\0", 8), 1},
                        {12, std::string("\0\0\0\0\0\0\x18\x40", 8), 6}, {16, std::string("\3\0\0\0\0\0\0\0", 8), 3},
                        {16, std::string("\3\0\0\0\0\0\0\1", 8), 1},     {12, "1234567", std::nullopt}};
  for (const Wide& each : cases) {
    EXPECT_EQ(exif_orientation(bytes_of(exif_entry_elsewhere(each.type, each.value))), each.orientation)
        << int{each.type};
  }
}

TEST(ImageDecode, OrientationInXmpCountsWithoutExifData) {
  EXPECT_EQ(xmp_orientation(bytes_of(xmp_of('6'))), 6);
  EXPECT_EQ(xmp_orientation(bytes_of(xmp_of('8', false))), 8);
  EXPECT_EQ(xmp_orientation(bytes_of(xmp_of('9'))), 1);
  EXPECT_EQ(xmp_orientation(bytes_of("<x tiff:Orientation />")), std::nullopt);
  const auto exif = bytes_of(exif_of(1));
  const auto xmp = bytes_of(xmp_of('6'));
  EXPECT_EQ((Metadata{.exif = exif, .xmp = xmp}.orientation()), 1);
  EXPECT_EQ((Metadata{.xmp = xmp}.orientation()), 6);
}

int orientation_in(const std::string& file) { return read_image_header(bytes_of(file)).orientation; }

TEST(ImageDecode, OrientationOfPngFilesCanFollowThePixels) {
  const std::string png = png_of_numbers(4, std::vector<std::uint8_t>(8, 1), 8, false);
  const std::size_t after_header = 8 + 25;
  const std::size_t end = png.size() - 12;
  const auto with = [&](const std::string& type, const std::string& content, std::size_t position) {
    return std::string(png).insert(position, png_chunk(type, content));
  };
  std::string hex = "\nexif\n      28\n";
  const std::string exif = std::string("Exif\0\0", 6) + exif_of(6);
  for (const char c : exif) {
    hex += "0123456789abcdef"[static_cast<std::uint8_t>(c) >> 4];
    hex += "0123456789abcdef"[static_cast<std::uint8_t>(c) & 15];
  }
  const std::string raw("Raw profile type exif\0", 22);
  const std::string xmp("XML:com.adobe.xmp\0", 18);
  EXPECT_EQ(orientation_in(png), 1);
  for (const std::size_t position : {after_header, end}) {
    EXPECT_EQ(orientation_in(with("eXIf", exif_of(6), position)), 6);
    EXPECT_EQ(orientation_in(with("tEXt", raw + hex, position)), 6);
    EXPECT_EQ(orientation_in(with("zTXt", raw + '\0' + stored_stream(hex), position)), 6);
    EXPECT_EQ(orientation_in(with("iTXt", xmp + std::string("\0\0\0\0", 4) + xmp_of('8'), position)), 8);
    EXPECT_EQ(orientation_in(with("iTXt", xmp + std::string("\1\0\0\0", 4) + stored_stream(xmp_of('8')), position)), 8);
    EXPECT_EQ(orientation_in(with("tEXt", std::string("exif\0", 5) + exif, position)), 6);
    EXPECT_EQ(orientation_in(with("iTXt", raw + std::string("\0\0\0\0", 4) + hex, position)), 6);
    EXPECT_EQ(orientation_in(with("tEXt", xmp + xmp_of('8'), position)), 8);
    EXPECT_EQ(orientation_in(with("zTXt", xmp + '\0' + stored_stream(xmp_of('8')), position)), 8);
  }
  EXPECT_EQ(orientation_in(with("eXIf", exif_of(6), png.size())), 1) << "after the end";
}

TEST(ImageDecode, OrientationOfJpegFilesIsThatOfTheFirstExifSegment) {
  const std::vector<std::byte> encoded = testing::encode_jpeg(testing::test_image(2, 4, 3), {.name = "small"});
  const std::string jpeg(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  const auto segment = [](const std::string& content) {
    const std::size_t size = content.size() + 2;
    return std::string("\xFF\xE1") + static_cast<char>(size >> 8) + static_cast<char>(size & 255) + content;
  };
  const std::string exif("Exif\0\0", 6);
  const std::string xmp = std::string("http://ns.adobe.com/xap/1.0/\0", 29) + xmp_of('8');
  const std::size_t before_pixels = jpeg.find("\xFF\xDA");
  EXPECT_EQ(orientation_in(std::string(jpeg).insert(2, segment(xmp))), 8);
  EXPECT_EQ(orientation_in(std::string(jpeg).insert(2, segment(xmp) + segment(exif + exif_of(6)))), 6);
  EXPECT_EQ(orientation_in(std::string(jpeg).insert(2, segment(exif + exif_of(6)) + segment(exif + exif_of(3)))), 6);
  EXPECT_EQ(orientation_in(std::string(jpeg).insert(before_pixels, segment(exif + exif_of(6)))), 6);
  const std::string parts = segment(exif + exif_of(6).substr(0, 9)) + segment(exif + exif_of(6).substr(9));
  EXPECT_EQ(orientation_in(std::string(jpeg).insert(2, parts)), 6);
}

std::string webp_chunk(const std::string& name, const std::string& content) {
  const auto size = static_cast<char>(content.size());  // below 128
  return name + size + std::string("\0\0\0", 3) + content + (content.size() % 2 == 1 ? std::string(1, '\0') : "");
}

/// A WebP file of 4 x 2 pixels with chunks of metadata.
std::string webp_with(char flags, const std::string& chunks) {
  const std::string pixels(
      "\x2F\x03\x40\x00\x00\x1F\x20\x10\x48\x42\xD8\x1F\x75\x12\x21\x41\x72\x81\xFF\x2B\xCD\x26\x21\x01"
      "\x61\x82\xFF\x2B\x65\x69\xFE\xE3\x8F\x0A\x04\x7F\xD0\x8A\xE8\x7F\x04",
      41);
  const std::string size("\x03\0\0\x01\0\0", 6);  // minus 1
  const std::string content =
      "WEBP" + webp_chunk("VP8X", flags + std::string("\0\0\0", 3) + size) + webp_chunk("VP8L", pixels) + chunks;
  return "RIFF" + std::string{static_cast<char>(content.size() & 255), static_cast<char>(content.size() >> 8)} +
         std::string("\0\0", 2) + content;
}

TEST(ImageDecode, OrientationOfWebpFilesIsInTheirChunks) {
  if (!reads_webp()) GTEST_SKIP() << "this build does not read WebP";
  const std::string exif = webp_chunk("EXIF", exif_of(6));
  const std::string xmp = webp_chunk("XMP ", xmp_of('8'));
  EXPECT_EQ(orientation_in(webp_with(8, exif)), 6);
  EXPECT_EQ(orientation_in(webp_with(8, webp_chunk("EXIF", std::string("Exif\0\0", 6) + exif_of(6)))), 6);
  EXPECT_EQ(orientation_in(webp_with(4, xmp)), 8);
  EXPECT_EQ(orientation_in(webp_with(12, exif + xmp)), 6);
  EXPECT_EQ(orientation_in(webp_with(0, exif + xmp)), 1);  // the flags state that there are none
  Workspace workspace;
  const Image upright = decode(bytes_of(webp_with(8, exif)), {.applies_orientation = true}, workspace);
  EXPECT_EQ(upright.size(), (ImageSize{4, 2}));
  Image turned = decode(bytes_of(webp_with(8, exif)), {}, workspace);
  apply_orientation(turned, 6, workspace.spare);
  EXPECT_TRUE(equal(upright, turned));
}

}  // namespace image_decode_test
}  // namespace lockstep::data
