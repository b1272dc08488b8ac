// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/resize.hpp"

#include <lockstep/random/random.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/levels.hpp"

namespace lockstep::kernels {
namespace resize_test {

constexpr std::size_t kSlack = 64;  // bytes beyond the end that kernels may read and write

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

struct Pixels {
  Pixels(int height_of, int width_of) : height(height_of), width(width_of), bytes(stride() * height + kSlack) {}
  std::size_t stride() const { return 3 * static_cast<std::size_t>(width); }
  /// Leaves out what lies beyond the end.
  std::vector<std::uint8_t> values() const { return {bytes.begin(), bytes.end() - kSlack}; }

  int height, width;
  std::vector<std::uint8_t> bytes;
};

TEST(ResizeTest, KernelsOfEachLevelEqualThePlainOnes) {
  random::Sequence random(1, random::Stream::user, 5);
  for (const int taps : {4, 8, 20}) {
    for (const int height : {1, 3, 4, 7}) {
      SCOPED_TRACE(std::to_string(taps) + " taps, height " + std::to_string(height));
      Pixels image(height + taps, 37 + taps);
      for (std::uint8_t& byte : image.bytes) byte = static_cast<std::uint8_t>(random.below(256));
      const RandomTaps columns(23, taps, image.width, random);
      const RandomTaps rows(11, taps, image.height, random);
      Pixels narrow(image.height, 23);
      Pixels low(11, image.width);
      resize_rows_plain(image.bytes.data(), image.stride(), image.height, 3, columns.view, narrow.bytes.data());
      resize_columns_plain(image.bytes.data(), image.height, image.stride(), rows.view, low.bytes.data());
      testing::at_each_level([&] {
        Pixels result(image.height, 23);
        resize_rows(image.bytes.data(), image.stride(), image.height, 3, columns.view, result.bytes.data());
        EXPECT_EQ(result.values(), narrow.values());
        result = Pixels(11, image.width);
        resize_columns(image.bytes.data(), image.height, image.stride(), rows.view, result.bytes.data());
        EXPECT_EQ(result.values(), low.values());
      });
    }
  }
}

}  // namespace resize_test
}  // namespace lockstep::kernels
