// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/text/parameter_names.hpp"

namespace lockstep {
namespace name_pattern_test {

TEST(NamePatternTest, AStarStandsForTextWithoutADot) {
  EXPECT_TRUE(matches_name("block*.norm", "block12.norm"));
  EXPECT_TRUE(matches_name("*", "head"));
  EXPECT_FALSE(matches_name("*", "head.bias"));
  EXPECT_FALSE(matches_name("block", "block1"));
}

TEST(NamePatternTest, ABlockCoversWhatItContains) {
  EXPECT_TRUE(covers_name("block*", "block1.norm.weight"));
  EXPECT_TRUE(covers_name("block1.norm", "block1.norm.weight"));
  EXPECT_FALSE(covers_name("norm", "block1.norm.weight"));
  EXPECT_TRUE(cover_name({"head", "norm"}, "head.bias"));
  EXPECT_FALSE(cover_name({}, "head.bias"));
  EXPECT_EQ(name_patterns("conv1, block*,,"), (std::vector<std::string>{"conv1", "block*"}));
}

}  // namespace name_pattern_test
}  // namespace lockstep
