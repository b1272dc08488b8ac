// SPDX-License-Identifier: BSD-3-Clause
#include "core/text.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace text_test {

using Words = std::vector<std::string>;

TEST(TextTest, TrimmedTakesSpacesTabsAndLineEndsAway) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \t "), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(TextTest, PartsAreTrimmedAndParenthesesStayTogether) {
  EXPECT_EQ(split_list(" a , b=(c,d) ,\te", ','), (Words{"a", "b=(c,d)", "e"}));
  EXPECT_EQ(split_list("a/b,c/", '/'), (Words{"a", "b,c", ""}));
  EXPECT_EQ(split_list("", ','), Words{""});
}

TEST(TextTest, WordsAreThePartsThatAreNotEmpty) {
  EXPECT_EQ(words_in("a, b ,,c,"), (Words{"a", "b", "c"}));
  EXPECT_EQ(words_in("a b/c", '/'), (Words{"a b", "c"}));
  EXPECT_EQ(words_in(" "), Words{});
}

TEST(TextTest, JoinedPutsASeparatorBetweenWords) {
  EXPECT_EQ(joined({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(joined({"", "b", ""}, "/"), "/b/");
  EXPECT_EQ(joined({"a"}), "a");
  EXPECT_EQ(joined({}), "");
}

TEST(TextTest, NumbersHaveTenDigitsOrAsManyAsAskedFor) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1.0 / 3), "0.3333333333");
  EXPECT_EQ(number_text(1.0 / 3, 6), "0.333333");
  EXPECT_EQ(number_text(12), "12");
  EXPECT_EQ(number_text(1e30), "1e+30");
}

}  // namespace text_test
}  // namespace lockstep
