// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/selection.hpp"

namespace lockstep::ckpt {
namespace slice_test {

using Shape = std::vector<std::int64_t>;

TEST(SliceTest, TakesWhatPythonTakes) {
  EXPECT_EQ(
      parse_slice("[0:4, :, 3]", {8, 2, 5}),
      (ArraySlice{{.begin = 0, .count = 4}, {.begin = 0, .count = 2}, {.begin = 3, .count = 1, .is_index = true}}));
  EXPECT_EQ(parse_slice("[-3:]", {8}), (ArraySlice{{.begin = 5, .count = 3}}));
  EXPECT_EQ(parse_slice("[:100]", {8}), (ArraySlice{{.begin = 0, .count = 8}}));
  EXPECT_EQ(parse_slice("[1:8:3]", {8}), (ArraySlice{{.begin = 1, .count = 3, .step = 3}}));
  EXPECT_EQ(parse_slice("[-1]", {8}), (ArraySlice{{.begin = 7, .count = 1, .is_index = true}}));
  EXPECT_EQ(parse_slice("[5:2]", {8}), (ArraySlice{{.begin = 5, .count = 0}}));
}

TEST(SliceTest, WhatIsNotMentionedIsTakenWhole) {
  const ArraySlice all = {{.begin = 0, .count = 2}, {.begin = 0, .count = 3}};
  EXPECT_EQ(parse_slice("", {2, 3}), all);
  EXPECT_EQ(parse_slice("[]", {2, 3}), all);
  EXPECT_EQ(parse_slice("[0:2]", {2, 3}), all);
  EXPECT_EQ(parse_slice("", {}), ArraySlice());
}

TEST(SliceTest, SaysWhatIsWrong) {
  for (const char* const text :
       {"[8]", "[-9]", "[0,0]", "[x]", "[0:1:0]", "[1:2:3:4]", "[,]", "0:4", "[1.5]", "[99999999999999999999]"}) {
    EXPECT_THROW(parse_slice(text, {8}), Failure) << text;
  }
}

TEST(SliceTest, ListsElementsInOrder) {
  const Shape shape = {3, 4};
  EXPECT_EQ(elements_of(parse_slice("[1:, ::2]", shape), shape, 100), (Shape{4, 6, 8, 10}));
  EXPECT_EQ(shape_of(parse_slice("[1:, ::2]", shape)), (Shape{2, 2}));
  EXPECT_EQ(elements_of(parse_slice("[:, -1]", shape), shape, 2), (Shape{3, 7}));
  EXPECT_EQ(shape_of(parse_slice("[:, -1]", shape)), (Shape{3}));
  EXPECT_EQ(elements_of(parse_slice("[0:0]", shape), shape, 100), Shape());
  EXPECT_EQ(elements_of({}, {}, 100), (Shape{0}));
}

TEST(SliceTest, IsSplitFromAName) {
  EXPECT_EQ(split_slice("a.b[0:4]").name, "a.b");
  EXPECT_EQ(split_slice("a.b[0:4]").slice, "[0:4]");
  EXPECT_EQ(split_slice("a.b").name, "a.b");
  EXPECT_EQ(split_slice("a.b").slice, "");
}

}  // namespace slice_test
}  // namespace lockstep::ckpt
