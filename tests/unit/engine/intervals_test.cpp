// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/intervals.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace intervals_test {

std::vector<int> due_up_to(int last, const std::string& text) {
  const Intervals intervals = Intervals::parse(text, 0, "eval.interval (test)");
  std::vector<int> due;
  for (int number = 1; number <= last; ++number) {
    if (intervals.is_due(number)) due.push_back(number);
  }
  return due;
}

// strategy.md 13.2.3: the last epoch, 12, is due in both ways.
TEST(IntervalsTest, ChangeAtTheirNumbers) {
  EXPECT_EQ(due_up_to(12, "5"), (std::vector<int>{5, 10}));
  EXPECT_EQ(due_up_to(12, "5,11:2"), (std::vector<int>{5, 10, 12}));
  EXPECT_EQ(due_up_to(12, "4,6:3,11:1"), (std::vector<int>{4, 6, 9, 11, 12}));
  EXPECT_EQ(due_up_to(12, "0,7:2"), (std::vector<int>{8, 10, 12}));
  EXPECT_EQ(due_up_to(12, "0"), std::vector<int>());
  EXPECT_TRUE(Intervals::parse("0", 0, "").is_off());
  EXPECT_FALSE(Intervals::parse("0,7:2", 0, "").is_off());
  EXPECT_EQ(Intervals::parse("3", 1, ""), Intervals(3));
}

TEST(IntervalsTest, MistakesAreNamed) {
  for (const char* const text :
       {"", "x", "5,", "5,2", "5:2", "5,x:2", "5,11:", "5,11:0", "5,11:2,11:3", "5,0:2", "-1"}) {
    try {
      Intervals::parse(text, 0, "eval.interval (test)");
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("eval.interval (test): ", 0), 0U) << text;
    }
  }
  EXPECT_THROW(Intervals::parse("0", 1, ""), ConfigError);
}

}  // namespace intervals_test
}  // namespace lockstep::engine
