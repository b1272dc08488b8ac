// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <limits>

#include "engine/evaluation/evaluation_counts.hpp"

namespace lockstep::engine {
namespace class_numbers_test {

using Numbers = std::vector<std::pair<std::string, double>>;

// Three of 4 cats are found, and there are no dogs.
const Table kConfusion = {.name = "confusion", .columns = 3, .values = {3, 1, 0, 0, 0, 0, 1, 2, 2}};

TEST(ClassNumbersTest, AccuracyOfEachClassThatOccurs) {
  EXPECT_EQ(class_numbers(kConfusion, {"cat", "dog", "red fox"}, 3),
            (Numbers{{"accuracy/cat", 0.75}, {"accuracy/red fox", 0.4}}));
  EXPECT_EQ(class_numbers(kConfusion, {}, 3), (Numbers{{"accuracy/0", 0.75}, {"accuracy/2", 0.4}}));
}

TEST(ClassNumbersTest, RowsWithAColumnPerClass) {
  const Table iou{.name = "iou", .columns = 3, .values = {0.5, std::numeric_limits<double>::quiet_NaN(), 1}};
  EXPECT_EQ(class_numbers(iou, {"sky", "sea", "land"}, 3), (Numbers{{"iou/sky", 0.5}, {"iou/land", 1}}));
}

TEST(ClassNumbersTest, OtherTablesHaveNone) {
  EXPECT_EQ(class_numbers(kConfusion, {}, 9), Numbers{});
  EXPECT_EQ(class_numbers({.name = "curve", .columns = 3, .values = {1, 2, 3, 4, 5, 6, 7, 8, 9}}, {}, 3), Numbers{});
  EXPECT_EQ(class_numbers({}, {}, 0), Numbers{});
}

}  // namespace class_numbers_test
}  // namespace lockstep::engine
