// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace lockstep {
namespace keys_test {

TEST(KeysTest, EachBuilderDeclaresItsType) {
  const std::array<std::pair<KeySpec, KeyType>, 10> rows = {{{keys::boolean("a.b", "true", "h"), KeyType::boolean},
                                                             {keys::integer("a.b", "1", "h"), KeyType::integer},
                                                             {keys::real("a.b", "1", "h"), KeyType::real},
                                                             {keys::real_above("a.b", 0, 2, "1", "h"), KeyType::real},
                                                             {keys::text("a.b", "x", "h"), KeyType::text},
                                                             {keys::choice("a.b", "x", "h", {"x"}), KeyType::choice},
                                                             {keys::integers("a.b", "1", "h"), KeyType::integers},
                                                             {keys::reals("a.b", "1", "h"), KeyType::reals},
                                                             {keys::texts("a.b", "x", "h"), KeyType::texts},
                                                             {keys::words("a.b", "x", "h"), KeyType::words}}};
  for (const auto& [key, type] : rows) {
    EXPECT_EQ(key.name, "a.b");
    EXPECT_EQ(key.type, type);
    EXPECT_EQ(key.help, "h");
    EXPECT_EQ(fault_in(key, key.default_value), "") << key.default_value;
  }
}

TEST(KeysTest, RangesAreInclusiveAndUnlimitedByDefault) {
  EXPECT_EQ(range_of(keys::integer("a", "1", "")), "an integer");
  EXPECT_EQ(range_of(keys::integer("a", "1", "", 0)), "an integer >= 0");
  EXPECT_EQ(range_of(keys::real("a", "1", "", -1, 1)), "a number in [-1, 1]");
  EXPECT_EQ(range_of(keys::real_above("a", 0, 1, "1", "")), "a number in (0, 1]");
  EXPECT_EQ(range_of(keys::real_above("a", 0, keys::kUnlimited, "1", "")), "a number > 0");
  EXPECT_EQ(range_of(keys::integers("a", "1", "", 1)), "integers >= 1, separated by commas");
  EXPECT_EQ(range_of(keys::reals("a", "1", "", 0, 1)), "numbers in [0, 1], separated by commas");
  EXPECT_EQ(range_of(keys::choice("a", "x", "", {"x", "y"})), "one of: x, y");
}

}  // namespace keys_test
}  // namespace lockstep
