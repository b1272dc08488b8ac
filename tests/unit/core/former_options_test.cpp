// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/former_options.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

namespace lockstep {
namespace former_options_test {

/// Option `every` was called `interval`; `better` had other words; `total` replaces `first` and `second`, by their sum.
KeySpecs options() {
  const auto translate = [](const std::string& word, const std::string&) {
    return word == "less" ? std::string("lower") : std::string();
  };
  const auto sum = [](const std::string& former, const std::string& current) -> std::string {
    if (former == "none") return "";
    return std::to_string(std::stoi(former) + (current.empty() ? 0 : std::stoi(current)));
  };
  KeySpec total = keys::integer("total", "0", "");
  total = keys::replacing(total, {.key = "first", .translate = sum, .hint = "add them"});
  total = keys::replacing(total, {.key = "second", .translate = sum, .hint = "add them"});
  return {keys::renamed(keys::integer("every", "1", ""), "interval"),
          keys::replacing(keys::choice("better", "lower", "", {"lower", "higher"}),
                          {.key = "better", .translate = translate}),
          total};
}

std::string refusal(const std::string& key, const std::string& value, const std::string& total = "") {
  Section section;
  for (const KeySpec& option : options()) section.declare(option);
  if (!total.empty()) section.set("total", total, "test");
  try {
    refuse_former_option(section, key, value, "here");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string translated(const std::string& entry) {
  KeySpec key = keys::texts("train.hooks", "", "");
  key.parts.push_back(keys::text("row", "", ""));
  key.parts.back().parts = options();
  return with_new_options(key, entry);
}

TEST(FormerOptionsTest, AUserIsToldTheNewOne) {
  EXPECT_EQ(refusal("interval", "10"), "here: interval=10 was replaced by every=10");
  EXPECT_EQ(refusal("better", "less"), "here: better=less was replaced by better=lower");
  EXPECT_EQ(refusal("first", "2"), "here: first=2 was replaced by total=2");
  EXPECT_EQ(refusal("first", "2", "3"), "here: first=2 was replaced by total=5");
  EXPECT_EQ(refusal("first", "none"), "here: first=none was replaced by total; add them");
  EXPECT_EQ(refusal("every", "10"), "");
  EXPECT_EQ(refusal("better", "higher"), "");
  EXPECT_EQ(refusal("unknown", "10"), "");
}

TEST(FormerOptionsTest, AStoredEntryIsTranslated) {
  EXPECT_EQ(translated("row,interval=10"), "row,every=10");
  EXPECT_EQ(translated("row, better = less ,interval=3"), "row,better=lower,every=3");
  EXPECT_EQ(translated("row,first=2,every=3,second=5"), "row,total=7,every=3");
  EXPECT_EQ(translated("row,first=none,every=3"), "row,every=3");
  for (const char* const of_today : {"row", "row,every=3, better=higher", "other,interval=3", "", "row,interval"}) {
    EXPECT_EQ(translated(of_today), of_today);
  }
}

}  // namespace former_options_test
}  // namespace lockstep
