// SPDX-License-Identifier: BSD-3-Clause
#include "config/help.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <sstream>

#include "core/text/table.hpp"
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

/// A table of two optimizers with a key of their own each, a shared one with two defaults, and a common one.
KeySpecs specs_with_choices() {
  struct Row {
    std::string name;
    std::string help;
    KeySpecs keys;
  };
  const auto momentum = [](const char* value) { return keys::real("optim.momentum", value, "Momentum"); };
  const std::vector<Row> rows = {
      {"sgd", "Plain steps", {momentum("0"), keys::boolean("optim.nesterov", "false", "Look ahead")}},
      {"muon", "Orthogonal steps", {momentum("0.95"), keys::real("optim.lr", "0.02", "Rate")}},
      {"sign", "Steps of one size", {}}};
  return keys_of_rows(
      {keys::choice("optim.name", "sgd", "Optimizer", {"sgd", "muon", "sign"}), keys::real("optim.lr", "0.1", "Rate"),
       keys::expert(keys::text("optim.trace", "", "File for the trace"))},
      rows, {"optim.name"});
}

const std::string kSectionWithChoices =
    "[optim]\n"
    "  --optim.name  Optimizer. One of: sgd, muon, sign; default sgd\n"
    "  --optim.lr    Rate. Number; default auto = that of optim.name\n"
    "\n"
    "Choices of optim.name (--help=optim.NAME describes the keys of one)\n"
    "  sgd   Plain steps\n"
    "  muon  Orthogonal steps\n"
    "  sign  Steps of one size\n"
    "\n";

TEST(HelpTest, ASectionListsItsChoicesAndLeavesTheirKeysToThem) {
  EXPECT_EQ(section_help("optim", specs_with_choices()),
            kSectionWithChoices + "Expert keys (--help=optim.expert describes them): trace\n");
  EXPECT_EQ(section_help("optim.expert", specs_with_choices()),
            "[optim] Expert keys\n"
            "  --optim.trace  File for the trace. Text; default none\n");
}

TEST(HelpTest, AChoiceShowsWhatItReadsWithItsDefaults) {
  const std::string end = "; --help=optim describes the keys that do not depend on optim.name\n";
  EXPECT_EQ(section_help("optim.muon", specs_with_choices()),
            "optim.name=muon: Orthogonal steps\n"
            "  --optim.lr        Rate. Number; default 0.02\n"
            "  --optim.momentum  Momentum. Number; default 0.95\n"
            "\n"
            "These are its own keys" +
                end);
  EXPECT_EQ(section_help("optim.sign", specs_with_choices()),
            "optim.name=sign: Steps of one size\n"
            "\n"
            "It has no keys of its own" +
                end);
}

TEST(HelpTest, OneKeyIsDescribedByItsFullName) {
  EXPECT_EQ(section_help("optim.momentum", specs_with_choices()),
            "[optim]\n"
            "  --optim.momentum  Momentum. Number; default auto = that of optim.name\n");
}

TEST(HelpTest, ASectionInFullHasTheKeysOfItsChoicesAndOfExperts) {
  EXPECT_EQ(section_help("optim.all", specs_with_choices()),
            kSectionWithChoices +
                "optim.name=sgd\n"
                "  --optim.momentum  Momentum. Number; default 0\n"
                "  --optim.nesterov  Look ahead. True or false; default false\n"
                "\n"
                "optim.name=muon\n"
                "  --optim.lr        Rate. Number; default 0.02\n"
                "  --optim.momentum  Momentum. Number; default 0.95\n"
                "\n"
                "Expert keys\n"
                "  --optim.trace  File for the trace. Text; default none\n");
}

TEST(HelpTest, ChoicesWithTheSameKeysStandTogether) {
  const KeySpecs specs = {keys::choice("a.kind", "x", "", {"w", "x", "y"}),
                          keys::read_by(keys::integer("a.size", "3", ""), "a.kind", {"x", "y"})};
  EXPECT_EQ(section_help("a.all", specs),
            "[a]\n"
            "  --a.kind  One of: w, x, y; default x\n"
            "\n"
            "a.kind=x, y\n"
            "  --a.size  Integer; default 3\n");
}

TEST(HelpTest, AllListsEveryKey) {
  const std::string text = section_help("all", sample_specs());
  for (const KeySpec& spec : sample_specs()) EXPECT_NE(text.find("--" + spec.name), std::string::npos) << text;
}

TEST(HelpTest, FormsOfAnEntryHaveTheirOptionsAndCommonOnesOnce) {
  const KeySpec size = {.name = "size", .type = KeyType::real, .default_value = "nan", .help = "its length", .min = 0};
  const KeySpec at_key = {.name = "at", .type = KeyType::reals, .default_value = "", .help = "where it falls"};
  const KeySpec step = {
      .name = "step", .type = KeyType::text, .default_value = "", .help = "falls by steps", .parts = {at_key, size}};
  const KeySpec line = {
      .name = "line", .type = KeyType::text, .default_value = "", .help = "falls evenly", .parts = {size}};
  const KeySpec rule = {
      .name = "a.rule", .type = KeyType::texts, .default_value = "", .help = "a curve", .parts = {step, line}};
  const std::string of_step =
      "a.rule, step: falls by steps\n"
      "  at  where it falls. Numbers, separated by commas; default none\n";
  const std::string common =
      "\nOptions of all rules\n"
      "  size  its length. Number >= 0; default none\n";
  EXPECT_EQ(section_help("a", {rule}),
            "[a]\n"
            "  --a.rule  a curve. Text; may be repeated; default none\n"
            "\n"
            "Forms of a.rule (--help=rules.NAME describes the options of one)\n"
            "  step  falls by steps\n"
            "  line  falls evenly\n");
  EXPECT_EQ(section_help("rules", {rule}), common.substr(1) + "\n" + of_step + "\na.rule, line: falls evenly\n");
  EXPECT_EQ(section_help("rules.step", {rule}), of_step + common);
  EXPECT_EQ(section_help("a.step", {rule}), of_step + common);
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
  EXPECT_EQ(error_of("optim.zzz"),
            "--help=optim.zzz: the choice or key is unknown; --help=optim lists those of section optim");
}

TEST(HelpTest, TheOverviewNamesCommandsSectionsAndWhatMostRunsNeed) {
  const std::string text = overview_help(sample_specs(), sample_commands());
  EXPECT_NE(text.find("\n  eval      Evaluates a checkpoint\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  optim   the optimizer and its settings\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  --resume      what to go on from (default none)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  75   Stopped on request"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  130  Interrupted twice"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  LOCKSTEP_CPU     Lowers the processor level"), std::string::npos) << text;
  EXPECT_EQ(text.find(" \n"), std::string::npos) << text;
  EXPECT_EQ(text.find("optim.betas"), std::string::npos) << text;
  EXPECT_NE(command_help(sample_commands()).find("\n  --plot FILE          schedule: Output SVG file\n"),
            std::string::npos);
}

}  // namespace help_test
}  // namespace lockstep::config
