// SPDX-License-Identifier: BSD-3-Clause
#include "core/csv.hpp"

#include <gtest/gtest.h>

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

TEST(CsvTest, BothLineEndsEndARecordAndATornOneIsLeftOut) {
  EXPECT_EQ(parse_csv("a,b\r\n1,2\n3,"), (Records{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(parse_csv("a\n\"1\n2"), (Records{{"a"}}));
  EXPECT_EQ(parse_csv(""), Records{});
}

}  // namespace csv_test
}  // namespace lockstep
