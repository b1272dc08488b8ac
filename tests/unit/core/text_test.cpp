// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text.hpp"

#include <gtest/gtest.h>

#include "core/text/text_files.hpp"

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
  EXPECT_EQ(split_list("a[b,c],d", ','), (Words{"a[b,c]", "d"}));
  EXPECT_EQ(split_list("a[b,c", ','), (Words{"a[b", "c"}));  // a bracket without its partner
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

TEST(TextTest, LinesAreThoseOfTheWordsEvenWhereOneIsEmpty) {
  const Words words = {"a b", "", "c"};
  EXPECT_EQ(as_lines(words), "a b\n\nc\n");
  EXPECT_EQ(lines_in(as_lines(words)), words);
  EXPECT_EQ(lines_in("a\nb"), (Words{"a", "b"}));
  EXPECT_EQ(lines_in(""), Words());
}

TEST(TextTest, NumbersHaveTenDigitsOrAsManyAsAskedFor) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1.0 / 3), "0.3333333333");
  EXPECT_EQ(number_text(1.0 / 3, 6), "0.333333");
  EXPECT_EQ(number_text(12), "12");
  EXPECT_EQ(number_text(1e30), "1e+30");
}

TEST(TextTest, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(utf8_text("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"), "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(utf8_text("caf\xE9"), "caf\\xE9");
  EXPECT_EQ(utf8_text("\xC0\x80"), "\\xC0\\x80");           // longer than necessary
  EXPECT_EQ(utf8_text("\xED\xA0\x80"), "\\xED\\xA0\\x80");  // a surrogate
  EXPECT_EQ(utf8_text("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");
  EXPECT_EQ(utf8_text("a\xE2\x82"), "a\\xE2\\x82");  // cut off
  EXPECT_EQ(utf8_name("caf\xE9"), "caf\\xE9");
  EXPECT_EQ(utf8_name("caf\\xE9"), "caf\\x5CxE9");
  EXPECT_EQ(utf8_name("a\\b"), "a\\b");
}

TEST(TextTest, PlainTextsHaveNoByteOrderMarkAndOneKindOfLineEnds) {
  EXPECT_EQ(plain_text("\xEF\xBB\xBF"
                       "a\r\nb\rc\n\n"),
            "a\nb\nc\n\n");
  EXPECT_EQ(plain_text("a\r\r\n"), "a\n\n");
  EXPECT_EQ(plain_text("\xEF\xBB"), "\xEF\xBB");
  EXPECT_EQ(plain_lines("\xEF\xBB\xBF a\r\rb \r\n\n"), (Words{"a", "", "b"}));
  EXPECT_EQ(plain_lines(""), Words{});
}

}  // namespace text_test
}  // namespace lockstep
