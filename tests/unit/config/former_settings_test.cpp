// SPDX-License-Identifier: BSD-3-Clause
// Names and values of earlier versions: refused with the new ones, and translated in stored configurations.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "config/config.hpp"
#include "core/text/text.hpp"
#include "sample_specs.hpp"

namespace lockstep::config {
namespace former_settings_test {

KeySpecs renamed_specs() {
  KeySpecs specs = sample_specs();
  const auto old_names = [&specs](const std::string& name) -> std::vector<std::string>& {
    return std::find_if(specs.begin(), specs.end(), [&name](const KeySpec& key) { return key.name == name; })
        ->old_names;
  };
  old_names("optim.lr") = {"optim.learning_rate", "training.rate"};
  old_names("optim.group") = {"optim.rule"};
  old_names("resume") = {"restart"};
  return specs;
}

TEST(FormerSettingsTest, AnOldNameIsRefusedWithTheNewOne) {
  Config config(renamed_specs());
  const auto sentence = [&config](const std::string& ini) {
    return sentence_of([&] { config.read_ini(ini, "a.ini"); });
  };
  EXPECT_EQ(sentence("[optim]\nlearning_rate = 1\n"), "a.ini:2: key 'optim.learning_rate' was renamed to 'optim.lr'");
  EXPECT_EQ(sentence("[training]\nrate = 1\n"), "a.ini:2: key 'training.rate' was renamed to 'optim.lr'");
  EXPECT_EQ(sentence("restart = auto\n"), "a.ini:1: key 'restart' was renamed to 'resume'");
  EXPECT_EQ(sentence_of([&] { config.set("training.rate", "1", "command line"); }),
            "command line: key 'training.rate' was renamed to 'optim.lr'");
  EXPECT_EQ(sentence("[training]\nspeed = 1\n"),
            "a.ini:2: key 'training.speed' is unknown; --help lists the sections and --help=SECTION their keys");
  EXPECT_TRUE(config.section("optim").is_default("lr"));
}

TEST(FormerSettingsTest, AnOldNameInAStoredConfigurationIsTranslated) {
  Config config(renamed_specs());
  config.read_ini("restart = auto\n[training]\nrate = 2\n[optim]\nrule = a\nrule = b\nsteps = 7\n", "run",
                  OldNames::translated);
  EXPECT_EQ(config.section("").text("resume"), "auto");
  EXPECT_EQ(config.section("optim").real("lr"), 2);
  EXPECT_EQ(config.section("optim").cite("lr"), "optim.lr (run:3)");
  EXPECT_EQ(config.section("optim").texts("group"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.section("optim").integer("steps"), 7);
  EXPECT_EQ(config.specs().size(), sample_specs().size());
}

TEST(FormerSettingsTest, AnOldNameBelongsToOneKey) {
  KeySpecs specs = sample_specs();
  specs[0].old_names = {"optim.lr"};
  EXPECT_THROW(Config{specs}, std::logic_error);
  specs[0].old_names = {"a.b"};
  EXPECT_NO_THROW(Config{specs});
  specs[1].old_names = {"a.b"};
  EXPECT_THROW(Config{specs}, std::logic_error);
}

/// Key optim.lr replaces a former key and a former row of optim.group.
KeySpecs replacing_specs() {
  KeySpecs specs = sample_specs();
  KeySpec& lr = *std::find_if(specs.begin(), specs.end(), [](const KeySpec& key) { return key.name == "optim.lr"; });
  const auto halved = [](const std::string& former, const std::string&) {
    return former == "2" ? std::string("1") : std::string();
  };
  const auto sum = [](const std::string& former, const std::string& current) {
    return std::to_string(std::atoi(former.substr(5).c_str()) + std::atoi(current.c_str()));
  };
  lr.replaces = {{.key = "optim.double_lr", .translate = halved, .hint = "divide by 2"},
                 {.key = "optim.group", .word = "rate", .translate = sum}};
  return specs;
}

TEST(FormerSettingsTest, AFormerSettingIsRefusedWithTheNewOne) {
  Config config(replacing_specs());
  const auto sentence = [&config](const std::string& ini) {
    return sentence_of([&] { config.read_ini("[optim]\n" + ini, "a.ini"); });
  };
  EXPECT_EQ(sentence("double_lr = 2\n"), "a.ini:2: optim.double_lr=2 was replaced by optim.lr=1");
  EXPECT_EQ(sentence("double_lr = 3\n"), "a.ini:2: optim.double_lr=3 was replaced by optim.lr; divide by 2");
  EXPECT_EQ(sentence("group = rate,4\n"), "a.ini:2: optim.group=rate,4 was replaced by optim.lr=4");
  EXPECT_EQ(sentence_of([&] { config.set("optim.group", "rate,4", "command line"); }),
            "command line: optim.group=rate,4 was replaced by optim.lr=4");
  EXPECT_EQ(sentence("group = rates,4\n"), "");
  EXPECT_TRUE(config.section("optim").is_default("lr"));
}

TEST(FormerSettingsTest, SeveralKeysMayReplaceOneSetting) {
  KeySpecs specs = sample_specs();
  const auto part = [](std::size_t number) {
    return [number](const std::string& former, const std::string&) { return split_list(former, '/')[number]; };
  };
  for (KeySpec& key : specs) {
    if (key.name == "optim.lr") key.replaces = {{.key = "optim.both", .translate = part(0), .hint = "set one"}};
    if (key.name == "optim.steps") key.replaces = {{.key = "optim.both", .translate = part(1)}};
  }
  Config config(specs);
  const auto sentence = [&config](const std::string& text) {
    return sentence_of([&] { config.set("optim.both", text, "command line"); });
  };
  EXPECT_EQ(sentence("2/7"), "command line: optim.both=2/7 was replaced by optim.lr=2 and optim.steps=7");
  EXPECT_EQ(sentence("/7"), "command line: optim.both=/7 was replaced by optim.steps=7");
  EXPECT_EQ(sentence("/"), "command line: optim.both=/ was replaced by optim.lr; set one");
  config.read_ini("[optim]\nboth = 2/7\n", "run", OldNames::translated);
  EXPECT_EQ(config.section("optim").real("lr"), 2);
  EXPECT_EQ(config.section("optim").integer("steps"), 7);
}

TEST(FormerSettingsTest, AFormerSettingInAStoredConfigurationIsTranslated) {
  const auto stored = [](const std::string& ini) {
    Config config(replacing_specs());
    config.read_ini("[optim]\n" + ini, "run", OldNames::translated);
    return config;
  };
  const Config later = stored("double_lr = 2\nlr = 7\n");
  EXPECT_EQ(later.section("optim").cite("lr"), "optim.lr (run:2)");
  EXPECT_EQ(later.section("optim").real("lr"), 1);
  EXPECT_EQ(stored("double_lr = 3\nlr = 7\n").section("optim").real("lr"), 7);
  const Config several = stored("group = rate,2\ngroup = a\ngroup = rate,3\n");
  EXPECT_EQ(several.section("optim").real("lr"), 5);
  EXPECT_EQ(several.section("optim").texts("group"), std::vector<std::string>{"a"});
}

/// Key optim.name has an earlier form of its values, and optim.group rows with an option of another name.
KeySpecs reformed_specs() {
  KeySpecs specs = sample_specs();
  const auto key = [&specs](const std::string& name) -> KeySpec& {
    return *std::find_if(specs.begin(), specs.end(), [&](const KeySpec& each) { return each.name == name; });
  };
  const auto translate = [](const std::string& former, const std::string&) {
    return former == "adam_with_decay" ? std::string("adamw") : std::string();
  };
  key("optim.name").replaces = {{.key = "optim.name", .translate = translate}};
  KeySpec row = keys::text("rate", "", "");
  row.parts = {keys::renamed(keys::real("value", "1", ""), "number")};
  key("optim.group").parts = {row};
  return specs;
}

TEST(FormerSettingsTest, AKeyCanReplaceFormerValuesOfItsOwn) {
  Config config(reformed_specs());
  EXPECT_EQ(sentence_of([&] { config.read_ini("[optim]\nname = adam_with_decay\n", "a.ini"); }),
            "a.ini:2: optim.name=adam_with_decay is the form of earlier versions; write optim.name=adamw");
  EXPECT_EQ(sentence_of([&] { config.read_ini("[optim]\nname = adamw\n", "a.ini"); }), "");
  Config stored(reformed_specs());
  stored.read_ini("[optim]\nname = adam_with_decay\n", "run", OldNames::translated);
  EXPECT_EQ(stored.section("optim").text("name"), "adamw");
  EXPECT_EQ(stored.section("optim").cite("name"), "optim.name (run:2)");
}

TEST(FormerSettingsTest, OptionsInAStoredConfigurationAreTranslated) {
  const std::string ini = "[optim]\ngroup = rate,number=3\n";
  Config stored(reformed_specs());
  stored.read_ini(ini, "run", OldNames::translated);
  EXPECT_EQ(stored.section("optim").texts("group"), std::vector<std::string>{"rate,value=3"});
  Config written(reformed_specs());
  EXPECT_EQ(sentence_of([&] { written.read_ini(ini, "a.ini"); }),
            "a.ini:2: optim.group=rate,number=3 is the form of earlier versions; write optim.group=rate,value=3");
}

// A program may have a key or a row of its own with such a name.
TEST(FormerSettingsTest, NamesInUseAreNotFormerOnes) {
  KeySpecs specs = replacing_specs();
  specs.push_back({.name = "optim.double_lr", .type = KeyType::real, .default_value = "1", .help = ""});
  std::find_if(specs.begin(), specs.end(), [](const KeySpec& key) { return key.name == "optim.group"; })->parts = {
      {.name = "rate", .type = KeyType::text, .default_value = "", .help = ""}};
  Config config(specs);
  config.read_ini("[optim]\ndouble_lr = 2\ngroup = rate,4\n", "a.ini");
  EXPECT_EQ(config.section("optim").real("double_lr"), 2);
  EXPECT_EQ(config.section("optim").texts("group"), std::vector<std::string>{"rate,4"});
}

// An earlier version may have stored a path with a '$'.
TEST(FormerSettingsTest, AStoredPathMayContainADollarSign) {
  Config config(sample_specs());
  config.read_ini("[data]\npath = /data/$x/~\n", "run", OldNames::translated);
  EXPECT_EQ(config.section("data").text("path"), "/data/$x/~");
}

/// A key with a list, and an entry with one.
KeySpecs list_specs() {
  KeySpecs specs = sample_specs();
  KeySpec form = keys::text("normalize", "", "");
  form.old_names = {"normalise"};
  form.parts = {keys::words("mean", "0,0", "")};
  KeySpec entries = keys::texts("data.transform", "", "");
  entries.parts = {form};
  specs.insert(specs.end(),
               {entries, keys::words("optim.names", "", ""),
                keys::replacing(keys::integer("data.repeats", "1", "", 1),
                                {.key = "data.repeats", .translate = [](const std::string& former, const std::string&) {
                                   return std::string(former == "0" ? "1" : "");
                                 }})});
  return specs;
}

TEST(FormerSettingsTest, ValuesOfEarlierVersionsAreTranslatedWhereTheyAreStored) {
  Config config(list_specs());
  config.read_ini(
      "[data]\ntransform = normalise,mean=1/2\ntransform = other\ntransform = normalize,mean=3/4\nrepeats = 0\n"
      "path = a/b\nsizes = 3/4\n[optim]\nnames = conv1/block*\n",
      "run", OldNames::translated);
  EXPECT_EQ(config.section("data").texts("transform"),
            (std::vector<std::string>{"normalize,mean=1,2", "other", "normalize,mean=3,4"}))
      << "in their order";
  EXPECT_EQ(config.section("data").integer("repeats"), 1);
  EXPECT_EQ(config.section("data").text("path"), "a/b");
  EXPECT_EQ(config.section("data").integers("sizes"), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(config.section("optim").text("names"), "conv1,block*");
}

TEST(FormerSettingsTest, ValuesOfEarlierVersionsAreRefusedWithTheNewOne) {
  const auto refusal = [](const std::string& name, const std::string& text) {
    Config config(list_specs());
    return sentence_of([&] { config.set(name, text, "command line"); });
  };
  const std::string reason = " is the form of earlier versions; write ";
  EXPECT_EQ(refusal("data.transform", "normalise,mean=1/2"),
            "command line: data.transform=normalise,mean=1/2" + reason + "data.transform=normalize,mean=1,2");
  EXPECT_EQ(refusal("data.sizes", "3/4"), "command line: data.sizes=3/4" + reason + "data.sizes=3,4");
  EXPECT_EQ(refusal("optim.names", "a/b"), "command line: optim.names=a/b" + reason + "optim.names=a,b");
  EXPECT_EQ(refusal("data.repeats", "0"), "command line: data.repeats=0" + reason + "data.repeats=1");
  EXPECT_EQ(refusal("data.transform", "normalize,mean=1,2"), "");
}

TEST(FormerSettingsTest, AFormerSettingOfOneChoiceIsLeftOutOfTheOthers) {
  KeySpecs specs = sample_specs();
  specs.push_back(keys::replacing(keys::integer("optim.depth", "0", ""),
                                  {.key = "optim.layers",
                                   .translate = [](const std::string& former, const std::string&) { return former; },
                                   .note = "it is shared now",
                                   .only_with = "optim.name=adamw"}));
  const auto depth = [&](const std::string& name) {
    Config config(specs);
    config.read_ini("[optim]\nlayers = 4\nname = " + name + "\ndepth = 2\n", "run", OldNames::translated);
    return config.section("optim").integer("depth");
  };
  EXPECT_EQ(depth("adamw"), 4);
  EXPECT_EQ(depth("sgd"), 2);
  Config config(specs);
  EXPECT_EQ(sentence_of([&] { config.set("optim.layers", "4", "command line"); }),
            "command line: optim.layers=4 was replaced by optim.depth=4; it is shared now");
}

}  // namespace former_settings_test
}  // namespace lockstep::config
