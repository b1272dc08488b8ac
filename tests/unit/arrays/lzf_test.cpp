// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/lzf.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::arrays {
namespace lzf_test {

std::vector<std::byte> bytes_of_numbers(const std::vector<int>& numbers) {
  std::vector<std::byte> bytes;
  for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
  return bytes;
}

/// The decoded text; "damaged" if there is none.
std::string decoded(const std::vector<int>& numbers) {
  const std::vector<std::byte> from = bytes_of_numbers(numbers);
  const auto size = decoded_lzf_size(from);
  if (!size) return "damaged";
  std::string text(*size, '?');
  return decode_lzf(from, std::as_writable_bytes(std::span(text))) ? text : "damaged";
}

TEST(LzfTest, LiteralsAndCopies) {
  EXPECT_EQ(decoded({2, 'a', 'b', 'c'}), "abc");
  EXPECT_EQ(decoded({2, 'a', 'b', 'c', 1 << 5, 2}), "abcabc");                        // 3 bytes, 3 back
  EXPECT_EQ(decoded({0, 'a', 2 << 5, 0}), "aaaaa");                                   // the copy repeats what it writes
  EXPECT_EQ(decoded({1, 'a', 'b', 7 << 5, 1, 1}), "ab" + std::string("ababababab"));  // 7 + 1 + 2 bytes
  EXPECT_EQ(decoded({}), "");
}

TEST(LzfTest, DistancesHaveThirteenBits) {
  std::vector<int> numbers;
  std::string expected;
  for (int i = 0; i < 300; ++i) {  // 300 blocks of 32 letters
    numbers.push_back(31);
    for (int k = 0; k < 32; ++k) {
      numbers.push_back('a' + (i + k) % 26);
      expected += static_cast<char>('a' + (i + k) % 26);
    }
  }
  const int distance = 8192;
  numbers.insert(numbers.end(), {1 << 5 | (distance - 1) >> 8, (distance - 1) & 255});
  expected += expected.substr(expected.size() - distance, 3);
  EXPECT_EQ(decoded(numbers), expected);
}

TEST(LzfTest, DamagedInputIsRefused) {
  EXPECT_EQ(decoded({3, 'a', 'b', 'c'}), "damaged");   // a literal that ends too early
  EXPECT_EQ(decoded({0, 'a', 1 << 5}), "damaged");     // no distance
  EXPECT_EQ(decoded({0, 'a', 7 << 5, 1}), "damaged");  // no distance after the length
  EXPECT_EQ(decoded({0, 'a', 7 << 5}), "damaged");     // no length
  EXPECT_EQ(decoded({0, 'a', 1 << 5, 1}), "damaged");  // earlier than the beginning
  EXPECT_EQ(decoded({1 << 5, 0}), "damaged");          // a copy of nothing
}

/// Every change of a byte and every truncation either decodes to the stated size, or is refused. The sanitizers see
/// accesses outside of the buffers.
TEST(LzfTest, NoDamageLeavesTheBuffers) {
  const std::vector<int> good = {2, 'a', 'b', 'c', 1 << 5, 2, 7 << 5, 20, 1, 3, 'x', 'y', 'z', 'w', 3 << 5, 5};
  for (std::size_t end = 0; end <= good.size(); ++end) {
    for (std::size_t place = 0; place < end; ++place) {
      for (int value = 0; value < 256; ++value) {
        std::vector<int> damaged(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(end));
        damaged[place] = value;
        const std::vector<std::byte> from = bytes_of_numbers(damaged);
        const auto size = decoded_lzf_size(from);
        std::vector<std::byte> exact(size.value_or(7)), small(exact.size() / 2);
        EXPECT_EQ(decode_lzf(from, exact), size.has_value() && *size == exact.size());
        if (small.size() < exact.size()) {
          EXPECT_FALSE(decode_lzf(from, small));
        }
      }
    }
  }
}

}  // namespace lzf_test
}  // namespace lockstep::arrays
