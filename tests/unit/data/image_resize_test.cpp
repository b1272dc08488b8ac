// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "data/image/geometry.hpp"
#include "data/image/kernels.hpp"
#include "data/image/resize.hpp"
#include "data/image/resize_kernels.hpp"
#include "unit/data/jpeg_writer.hpp"

namespace lockstep::data {
namespace image_resize_test {

using testing::test_image;

/// Taps with random weights, of which some are negative, as bicubic filters have them.
struct RandomTaps {
  RandomTaps(int count, int taps, int inputs, random::Sequence& random) {
    for (int i = 0; i < count; ++i) {
      starts.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(inputs - taps + 1))));
      for (int tap = 0; tap < taps; ++tap) weights.push_back(static_cast<std::int32_t>(random.uniform(-3e5, 1.2e6)));
    }
    for (std::size_t i = 0; i < weights.size(); i += 2) {
      const auto low = [&](std::size_t k) { return static_cast<std::uint32_t>(weights[k] & 0x7FFF); };
      const auto high = [&](std::size_t k) { return static_cast<std::uint32_t>(weights[k] >> 15) & 0xFFFF; };
      pairs.push_back(static_cast<std::int32_t>(low(i) | low(i + 1) << 16));
      pairs.push_back(static_cast<std::int32_t>(high(i) | high(i + 1) << 16));
    }
    view = {count, taps, starts.data(), weights.data(), pairs.data()};
  }
  std::vector<std::int32_t> starts, weights, pairs;
  AxisTaps view;
};

TEST(ImageResize, FastKernelsEqualThePlainOnes) {
  random::Sequence random(1, random::Stream::user, 5);
  for (const int taps : {4, 8, 20}) {
    for (const int height : {1, 3, 4, 7}) {
      const Image image = test_image(height + taps, 37 + taps, 3, static_cast<std::uint64_t>(taps));
      const RandomTaps columns(23, taps, image.width, random);
      Image fast;
      Image plain;
      fast.reshape({image.height, 23}, 3);
      plain.reshape({image.height, 23}, 3);
      resize_rows(image.pixels.data(), image.stride(), image.height, 3, columns.view, fast.pixels.data());
      resize_rows_plain(image.pixels.data(), image.stride(), image.height, 3, columns.view, plain.pixels.data());
      EXPECT_TRUE(std::equal(fast.pixels.begin(), fast.pixels.end(), plain.pixels.begin())) << taps << " " << height;

      const RandomTaps rows(11, taps, image.height, random);
      fast.reshape({11, image.width}, 3);
      plain.reshape({11, image.width}, 3);
      resize_columns(image.pixels.data(), image.height, image.stride(), rows.view, fast.pixels.data());
      resize_columns_plain(image.pixels.data(), image.height, image.stride(), rows.view, plain.pixels.data());
      EXPECT_TRUE(std::equal(fast.pixels.begin(), fast.pixels.end(), plain.pixels.begin())) << taps << " " << height;
    }
  }
}

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
  look_up(image.pixels.data(), 35, 3, table.data(), 35, out.data());
  for (std::size_t i = 0; i < 35; ++i) {
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(out[c * 35 + i], table[256 * c + image.pixels[3 * i + c]]);
  }
}

}  // namespace image_resize_test
}  // namespace lockstep::data
