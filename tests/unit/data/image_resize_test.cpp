// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "data/image/geometry.hpp"
#include "data/image/resize.hpp"
#include "kernels/pixels.hpp"
#include "unit/data/jpeg_writer.hpp"

namespace lockstep::data {
namespace image_resize_test {

using testing::test_image;

TEST(ImageResize, APartIsThatOfTheWholeResult) {
  random::Sequence random(2, random::Stream::user, 5);
  const auto below = [&](int bound) { return static_cast<int>(random.below(static_cast<std::uint64_t>(bound))); };
  Workspace workspace;
  for (const std::string& name : filter_names()) {
    const ResizeFilter filter = filter_named(name);
    for (int i = 0; i < 60; ++i) {
      const int channels = i % 2 == 0 ? 3 : 1;
      const Image image = test_image(1 + below(90), 1 + below(90), channels);
      const ImageSize out{1 + below(60), 1 + below(60)};
      const int top = below(out.height);
      const int left = below(out.width);
      const Box part{top, left, 1 + below(out.height - top), 1 + below(out.width - left)};
      Image expected = image;
      resize(expected, out, filter, workspace);
      crop(expected, part, workspace.spare);
      const Box before = resize_part_before(image.size(), out, filter, part);
      Patch patch{.image = image, .area = before, .full = image.size()};
      crop(patch.image, before, workspace.spare);
      resize_part(patch, out, filter, part, workspace);
      ASSERT_EQ(patch.area, part);
      ASSERT_EQ(patch.image.size(), expected.size());
      ASSERT_TRUE(std::equal(expected.pixels.begin(), expected.pixels.end(), patch.image.pixels.begin()))
          << name << " " << image.height << " x " << image.width << " to " << out.height << " x " << out.width;
    }
  }
}

TEST(ImageResize, AConstantImageStaysConstant) {
  Workspace workspace;
  for (const std::string& name : filter_names()) {
    Image image;
    image.reshape({50, 70}, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{201});
    resize(image, {13, 190}, filter_named(name), workspace);
    for (const std::uint8_t byte : image.pixels) ASSERT_EQ(byte, 201) << name;
  }
}

TEST(ImageResize, FlipsAreTheirOwnInverse) {
  for (const int channels : {1, 3}) {
    for (const int width : {1, 2, 5, 16, 33, 100}) {
      const Image image = test_image(4, width, channels);
      Image flipped = image;
      flip_horizontally(flipped);
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < channels; ++c) {
          ASSERT_EQ(flipped.row(2)[x * channels + c], image.row(2)[(width - 1 - x) * channels + c]) << width;
        }
      }
      flip_horizontally(flipped);
      EXPECT_TRUE(std::equal(image.pixels.begin(), image.pixels.end(), flipped.pixels.begin()));
    }
  }
}

TEST(ImageResize, LookUpWritesPlanes) {
  const Image image = test_image(5, 7, 3);
  std::vector<float> table(3 * 256);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) * 0.5F;
  std::vector<float> out(3 * 35);
  kernels::look_up(image.pixels.data(), 35, 3, table.data(), 35, out.data());
  for (std::size_t i = 0; i < 35; ++i) {
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(out[c * 35 + i], table[256 * c + image.pixels[3 * i + c]]);
  }
}

}  // namespace image_resize_test
}  // namespace lockstep::data
