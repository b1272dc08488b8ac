// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <gtest/gtest.h>

namespace lockstep {
namespace section_test {

KeySpecs specs() {
  return {
      {.name = "optim.lr",
       .type = KeyType::real,
       .default_value = "0.1",
       .help = "",
       .min = 0.0,
       .min_is_exclusive = true},
      {.name = "optim.betas", .type = KeyType::reals, .default_value = "0.9, 0.99", .help = "", .min = 0, .max = 1},
      {.name = "optim.name", .type = KeyType::choice, .default_value = "sgd", .help = "", .choices = {"sgd", "adamw"}},
      {.name = "optim.nesterov", .type = KeyType::boolean, .default_value = "no", .help = ""},
      {.name = "optim.steps", .type = KeyType::integer, .default_value = "3", .help = "", .min = 1},
      {.name = "optim.group", .type = KeyType::texts, .default_value = "", .help = ""},
      {.name = "data.path", .type = KeyType::text, .default_value = "", .help = ""},
  };
}

std::string error_of(const std::string& key, const std::string& text) {
  Section section = Section::with_defaults("optim", specs());
  try {
    section.set(key, text, "command line");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(SectionTest, HoldsTheDefaultsOfItsOwnKeys) {
  const Section section = Section::with_defaults("optim", specs());
  EXPECT_EQ(section.real("lr"), 0.1);
  EXPECT_EQ(section.reals("betas"), (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(section.text("name"), "sgd");
  EXPECT_FALSE(section.boolean("nesterov"));
  EXPECT_EQ(section.integer("steps"), 3);
  EXPECT_TRUE(section.texts("group").empty());
  EXPECT_FALSE(section.has("path"));
  EXPECT_TRUE(section.is_default("lr"));
}

TEST(SectionTest, SetKeepsTheOriginAndRepeatedKeysGrow) {
  Section section = Section::with_defaults("optim", specs());
  section.set("lr", "3e-4", "a.ini:3");
  EXPECT_EQ(section.real("lr"), 3e-4);
  EXPECT_EQ(section.cite("lr"), "optim.lr (a.ini:3)");
  section.set("group", "a", "a.ini");
  section.set("group", "b", "a.ini");
  EXPECT_EQ(section.texts("group"), (std::vector<std::string>{"a", "b"}));
  section.set("group", "c", "command line");
  EXPECT_EQ(section.texts("group"), (std::vector<std::string>{"c"}));
}

TEST(SectionTest, RefusesInOneSentence) {
  EXPECT_EQ(error_of("lr", "0"), "command line: optim.lr: '0' is not a number > 0");
  EXPECT_EQ(error_of("lr", "fast"), "command line: optim.lr: 'fast' is not a number > 0");
  EXPECT_EQ(error_of("steps", "1.5"), "command line: optim.steps: '1.5' is not an integer >= 1");
  EXPECT_EQ(error_of("nesterov", "maybe"), "command line: optim.nesterov: 'maybe' is not true or false");
  EXPECT_EQ(error_of("betas", "0.9,,1"),
            "command line: optim.betas: '0.9,,1' is not numbers in [0, 1], separated by commas");
  EXPECT_EQ(error_of("name", "adam"),
            "command line: optim.name: 'adam' is not one of: sgd, adamw; did you mean 'adamw'?");
  EXPECT_EQ(error_of("rl", "1"), "command line: key 'optim.rl' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of("steps", "99999999999999999999"),
            "command line: optim.steps: '99999999999999999999' is not an integer >= 1");
}

TEST(SectionTest, ReadingAsAnotherTypeIsAMistakeInTheProgram) {
  const Section section = Section::with_defaults("optim", specs());
  EXPECT_THROW(section.integer("lr"), std::logic_error);
  EXPECT_THROW(section.real("missing"), std::logic_error);
}

}  // namespace section_test
}  // namespace lockstep
