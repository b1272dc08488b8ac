// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "core/text/table.hpp"

namespace lockstep {
namespace option_list_test {

using Words = std::vector<std::string>;

Section options() {
  Section section;
  section.declare({.name = "gamma", .type = KeyType::real, .default_value = "1", .help = "", .min = 0});
  section.declare({.name = "milestones", .type = KeyType::integers, .default_value = "", .help = ""});
  return section;
}

std::string error_of(const Words& words) {
  Section section = options();
  try {
    for (const std::string& word : words) set_option(section, word, "here");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(OptionListTest, SlashesSeparateInsideAnOption) {
  Section section = options();
  set_option(section, "milestones = 30/60", "here");
  set_option(section, "gamma=0.5", "here");
  EXPECT_EQ(section.integers("milestones"), (std::vector<std::int64_t>{30, 60}));
  EXPECT_EQ(section.real("gamma"), 0.5);
}

TEST(OptionListTest, ASentenceForWhatIsWrong) {
  EXPECT_EQ(error_of({"gamma"}), "here: 'gamma' does not have the form key=value");
  EXPECT_EQ(error_of({"gama=1"}), "here: key 'gama' is unknown; did you mean 'gamma'?");
  EXPECT_EQ(error_of({"gamma=-1"}), "here: gamma: '-1' is not a number >= 0");
  EXPECT_EQ(error_of({"gamma=1", "gamma=1"}), "here: gamma is given twice");
  EXPECT_EQ(error_of({"milestones=a/b"}), "here: milestones: 'a/b' is not integers, separated by slashes");
}

}  // namespace option_list_test
}  // namespace lockstep
