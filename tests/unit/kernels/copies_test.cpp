// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/copies.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::kernels {
namespace copies_test {

// Lengths and alignments are those around lines and vectors, and nothing beside the target is written.
TEST(CopyPastCachesTest, EveryByteIsCopiedAndNoOther) {
  constexpr std::size_t kRoom = 400;
  std::vector<std::byte> source(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t from = 0; from < 20; from += 3) {
    for (std::size_t place = 0; place < 70; ++place) {
      for (const std::size_t length : {0, 1, 15, 16, 63, 64, 65, 128, 200, 299}) {
        std::vector<std::byte> target(kRoom, std::byte{0xAA});
        std::vector<std::byte> expected = target;
        std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), length,
                    expected.begin() + static_cast<std::ptrdiff_t>(place));
        copy_past_caches(std::span(source).subspan(from, length), target.data() + place);
        ASSERT_EQ(target, expected) << from << " " << place << " " << length;
      }
    }
  }
}

}  // namespace copies_test
}  // namespace lockstep::kernels
