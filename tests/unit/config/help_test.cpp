// SPDX-License-Identifier: BSD-3-Clause
#include "config/help.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <sstream>

#include "sample_specs.hpp"

namespace lockstep::config {
namespace help_test {

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(HelpTest, ASectionListsItsKeysInTheirOrder) {
  EXPECT_EQ(section_help("optim", sample_specs()),
            "[optim] the optimizer and its settings\n"
            "  --optim.lr     base learning rate. Number > 0; default 0.1\n"
            "  --optim.betas  Numbers in [0, 1], separated by commas; default 0.9, 0.99\n"
            "  --optim.name   One of: sgd, adamw; default sgd\n"
            "  --optim.steps  Integer >= 1; default 3\n"
            "  --optim.group  Text; may be repeated; default none\n");
  EXPECT_EQ(section_help("resume", sample_specs()),
            "[resume]\n"
            "  --resume         what to go on from. Text; default none\n"
            "  --resume.verify  One of: full, none; default full\n");
}

TEST(HelpTest, FormsOfATextAreListedBelowTheKeys) {
  const KeySpec size = {.name = "size", .type = KeyType::real, .default_value = "nan", .help = "its length", .min = 0};
  const KeySpec at_key = {.name = "at", .type = KeyType::reals, .default_value = "", .help = "where it falls"};
  const KeySpec step = {
      .name = "step", .type = KeyType::text, .default_value = "", .help = "falls by steps", .parts = {size, at_key}};
  const KeySpec rule = {
      .name = "a.rule", .type = KeyType::texts, .default_value = "", .help = "a curve", .parts = {step}};
  EXPECT_EQ(section_help("a", {rule}),
            "[a]\n"
            "  --a.rule  a curve. Text; may be repeated; default none\n"
            "\n"
            "a.rule, step: falls by steps\n"
            "  size  its length. Number >= 0; default none\n"
            "  at    where it falls. Numbers, separated by commas; default none\n");
}

TEST(HelpTest, LongLinesAreWrappedAt100Columns) {
  std::string help;
  for (int i = 0; i < 60; ++i) help += "word ";
  const KeySpecs specs = {{.name = "a.key", .type = KeyType::text, .default_value = "x", .help = help}};
  const std::string text = section_help("a", specs);
  EXPECT_LE(longest_line(text), 100u);
  EXPECT_GT(longest_line(text), 90u);
  EXPECT_NE(text.find("\n           word"), std::string::npos) << text;
  EXPECT_LE(longest_line(overview_help(sample_specs(), sample_commands())), 100u);
}

TEST(HelpTest, AnUnknownSectionIsAConfigError) {
  const auto error_of = [](const std::string& section) {
    return sentence_of([&] { section_help(section, sample_specs()); });
  };
  EXPECT_EQ(error_of("optin"),
            "--help=optin: the section is unknown; choose one of: resume, optim, data, ddp (did you mean 'optim'?)");
  EXPECT_EQ(error_of("zzzzzz"), "--help=zzzzzz: the section is unknown; choose one of: resume, optim, data, ddp");
}

TEST(HelpTest, TheOverviewNamesEverythingOnce) {
  const std::string text = overview_help(sample_specs(), sample_commands());
  EXPECT_NE(text.find("\n  eval      Evaluates a checkpoint\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  --plot FILE          schedule: Output SVG file\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  optim   the optimizer and its settings\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  --resume  what to go on from. Text; default none\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  75   Stopped on request"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  130  Interrupted twice"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  LOCKSTEP_CPU     Lowers the processor level"), std::string::npos) << text;
  EXPECT_EQ(text.find(" \n"), std::string::npos) << text;
  EXPECT_EQ(text.find("optim.betas"), std::string::npos) << text;
}

}  // namespace help_test
}  // namespace lockstep::config
