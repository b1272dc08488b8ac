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
  section.declare(keys::words("names", "", ""));
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

TEST(OptionListTest, AWordWithoutASignContinuesAList) {
  EXPECT_EQ(entry_parts("freeze,names=conv1, block*,until=100"), (Words{"freeze", "names=conv1,block*", "until=100"}));
  EXPECT_EQ(entry_parts("normalize,mean=0.5,0.5,0.5,std=0.2,0.2,0.2"),
            (Words{"normalize", "mean=0.5,0.5,0.5", "std=0.2,0.2,0.2"}));
  EXPECT_EQ(entry_parts("composite,curves=(step,size=2 | linear,end=4),lengths=0.5,0.5"),
            (Words{"composite", "curves=(step,size=2 | linear,end=4)", "lengths=0.5,0.5"}));
  EXPECT_EQ(entry_parts("bias_lr_mult=2,norm_decay_mult=0"), (Words{"bias_lr_mult=2", "norm_decay_mult=0"}));
  EXPECT_EQ(entry_parts("name,word,a=1"), (Words{"name", "word", "a=1"})) << "a word before all options is none";
  EXPECT_EQ(entry_parts(""), Words{""});
  EXPECT_EQ(with_lists({"a=1", "2", "b=3"}), (Words{"a=1,2", "b=3"}));
  EXPECT_EQ(with_lists({}), Words());
}

TEST(OptionListTest, CommasSeparateInsideAnOption) {
  Section section = options();
  set_option(section, "milestones = 30,60", "here");
  set_option(section, "gamma=0.5", "here");
  EXPECT_EQ(section.integers("milestones"), (std::vector<std::int64_t>{30, 60}));
  EXPECT_EQ(section.real("gamma"), 0.5);
}

TEST(OptionListTest, ASentenceForWhatIsWrong) {
  EXPECT_EQ(error_of({"gamma"}), "here: 'gamma' does not have the form key=value");
  EXPECT_EQ(error_of({"gama=1"}), "here: key 'gama' is unknown; did you mean 'gamma'?");
  EXPECT_EQ(error_of({"gamma=-1"}), "here: gamma: '-1' is not a number >= 0");
  EXPECT_EQ(error_of({"gamma=1", "gamma=1"}), "here: gamma is given twice");
  EXPECT_EQ(error_of({"milestones=a,b"}), "here: milestones: 'a,b' is not integers, separated by commas");
}

TEST(OptionListTest, SlashesOfEarlierVersionsAreRefusedWithTheListOfToday) {
  EXPECT_EQ(error_of({"milestones=30/60"}),
            "here: milestones: '30/60' is not integers, separated by commas; write 30,60");
  EXPECT_EQ(error_of({"milestones=30/x"}), "here: milestones: '30/x' is not integers, separated by commas");
  EXPECT_EQ(error_of({"names=conv1/block*"}),
            "here: names: 'conv1/block*' is not words, separated by commas; write conv1,block*");
}

/// Two forms with options, of which one was renamed and one has other values.
KeySpecs forms() {
  KeySpec early = keys::text("early", "", "");
  early.old_names = {"erly"};
  early.parts = {
      keys::renamed(keys::integer("every", "1", ""), "interval"),
      keys::replacing(keys::text("better", "lower", ""), {.key = "rule",
                                                          .translate =
                                                              [](const std::string& rule, const std::string&) {
                                                                return std::string(rule == "less" ? "lower" : "higher");
                                                              }}),
      keys::words("names", "", "")};
  KeySpec curve = keys::text("curve", "", "");
  curve.parts = {keys::reals("interval", "", ""), keys::text("curves", "", "")};
  return {early, curve};
}

TEST(OptionListTest, AnEntryOfEarlierVersionsInTheFormOfToday) {
  EXPECT_EQ(todays_entry("erly,interval=5,rule=less,names=a/b", forms()), "early,every=5,better=lower,names=a,b");
  EXPECT_EQ(todays_entry("curve,interval=1/2", forms()), "curve,interval=1,2") << "of this form";
  EXPECT_EQ(todays_entry("curve,curves=(curve,interval=1/2 | curve)", forms()),
            "curve,curves=(curve,interval=1,2 | curve)");
  EXPECT_EQ(todays_entry("part,betas=0.5/0.9", forms(), {keys::reals("optim.betas", "", "")}), "part,betas=0.5,0.9");
}

/// Option `every` was called `interval`; `better` had other words; `total` replaces `first` and `second`, by their sum.
KeySpecs form_with_sums() {
  const auto translate = [](const std::string& word, const std::string&) {
    return word == "less" ? std::string("lower") : std::string();
  };
  const auto sum = [](const std::string& former, const std::string& current) -> std::string {
    if (former == "none") return "";
    return std::to_string(std::stoi(former) + (current.empty() ? 0 : std::stoi(current)));
  };
  KeySpec total = keys::integer("total", "0", "");
  for (const char* const former : {"first", "second"}) {
    total = keys::replacing(total, {.key = former, .translate = sum});
  }
  KeySpec row = keys::text("row", "", "");
  row.parts = {keys::renamed(keys::integer("every", "1", ""), "interval"),
               keys::replacing(keys::choice("better", "lower", "", {"lower", "higher"}),
                               {.key = "better", .translate = translate}),
               total};
  return {row};
}

TEST(OptionListTest, FormerOptionsCanBeReplacedByOne) {
  const auto today = [](const std::string& entry) { return todays_entry(entry, form_with_sums()); };
  EXPECT_EQ(today("row,interval=10"), "row,every=10");
  EXPECT_EQ(today("row, better = less ,interval=3"), "row,better=lower,every=3");
  EXPECT_EQ(today("row,first=2,every=3,second=5"), "row,total=7,every=3");
  EXPECT_EQ(today("row,first=none,every=3"), "row,every=3");
  for (const char* const of_today : {"row", "row,every=3, better=higher", "", "row,interval"}) {
    EXPECT_EQ(today(of_today), of_today);
  }
}

// Blanks stay, too.
TEST(OptionListTest, AnEntryOfTodayStays) {
  for (const char* const entry : {"early, every=5, names=a,b", "curve,interval=1,2", "curve,interval=a/b",
                                  "unknown,path=a/b", "early,every=1/2", "curve,curves=(curve | early)", ""}) {
    EXPECT_EQ(todays_entry(entry, forms()), entry);
  }
}

}  // namespace option_list_test
}  // namespace lockstep
