// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "data/image/codecs.hpp"
#include "data/image/decode.hpp"
#include "data/image/geometry.hpp"
#include "reference/arrays.hpp"
#include "support/folders.hpp"
#include "support/reference.hpp"
#include "unit/data/jpeg_writer.hpp"

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
                           {.name = "grey", .channels = 1, .horizontal = 1, .vertical = 1},
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
    EXPECT_NE(std::string(error.what()).find("data.max_image_bytes"), std::string::npos) << error.what();
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
  const Image grey = decode(bytes_of("P5 2 1 255\nab"), {.channels = 3}, workspace);
  EXPECT_EQ(std::string(grey.pixels.begin(), grey.pixels.end()), "aaabbb");
}

TEST(ImageDecode, OrientationIsThatOfTheExifData) {
  const std::string little("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22);
  const std::string big("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0", 22);
  EXPECT_EQ(exif_orientation(bytes_of(little)), 6);
  EXPECT_EQ(exif_orientation(bytes_of(big)), 8);
  for (std::size_t size = 0; size < 20; ++size) EXPECT_EQ(exif_orientation(bytes_of(little.substr(0, size))), 1);
}

}  // namespace image_decode_test
}  // namespace lockstep::data
