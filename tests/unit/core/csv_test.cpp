// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/text/text_files.hpp"

namespace lockstep {
namespace csv_test {

using Fields = std::vector<std::string>;
using Records = std::vector<Fields>;

TEST(CsvTest, FieldsAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(csv_record({"a b", "", "c;d"}), "a b,,c;d\n");
  EXPECT_EQ(csv_record({"a,b", "c\"d", "e\nf", "\r"}), "\"a,b\",\"c\"\"d\",\"e\nf\",\"\r\"\n");
}

TEST(CsvTest, RecordsAreReadBack) {
  const Records records = {{"a,b", "c\"d", "e\r\nf", ""}, {"\"", "\"\"", ",", "\n"}, {""}, {"x", " y "}};
  std::string text;
  for (const Fields& record : records) text += csv_record(record);
  EXPECT_EQ(parse_csv(text), records);
}

// Spreadsheets and editors change a file before a run is resumed.
TEST(CsvTest, EveryFormOfLinesIsRead) {
  const Records records = {{"step", "val/cat, tabby"}, {"10", "0.5"}, {"20", ""}};
  for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
    for (const std::string end : {"\n", "\r\n", "\r"}) {
      const std::string text = mark + "step,\"val/cat, tabby\"" + end + "10,0.5" + end + "20,";
      EXPECT_EQ(parse_csv(text), records) << ::testing::PrintToString(text);
      EXPECT_EQ(parse_csv(text + end), records) << ::testing::PrintToString(text);
    }
  }
  EXPECT_EQ(parse_csv("\"a\r\"\r\n\"\"\"\"\n\"\"\r\n\n"), (Records{{"a\r"}, {"\""}, {""}, {""}}));
  EXPECT_EQ(parse_csv("a\n\"1"), (Records{{"a"}})) << "an open quote";
  EXPECT_EQ(parse_csv("a\n\"1\n2"), (Records{{"a"}}));
  EXPECT_EQ(parse_csv("a\n\"1\""), (Records{{"a"}, {"1"}}));
  EXPECT_EQ(parse_csv(""), Records{});
}

TEST(CsvTest, ListsInAFieldQuoteTheirSeparator) {
  EXPECT_EQ(csv_list({}), "");
  EXPECT_EQ(csv_list({"cat, tabby", "dog"}), "cat, tabby;dog");
  EXPECT_EQ(csv_list({"a;b", "c\"d", ""}), "\"a;b\";\"c\"\"d\";");
  EXPECT_EQ(csv_record({csv_list({"a;b"})}), "\"\"\"a;b\"\"\"\n");
}

}  // namespace csv_test
}  // namespace lockstep
