// SPDX-License-Identifier: BSD-3-Clause
#include "config/config.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "sample_specs.hpp"

namespace lockstep::config {
namespace config_test {

std::string error_of(const std::string& ini) {
  Config config(sample_specs());
  return sentence_of([&] { config.read_ini(ini, "a.ini"); });
}

std::string read_back(const Config& config) {
  Config copy(sample_specs());
  copy.read_ini(config.to_ini(), "resolved.ini");
  return nlohmann::json::parse(copy.to_json()).dump();
}

std::string values_only(const std::string& json) {
  nlohmann::json all = nlohmann::json::parse(json);
  for (auto& [name, entry] : all.items()) entry.erase("origin");
  return all.dump();
}

TEST(ConfigTest, BeginsWithTheDefaultsOfEverySection) {
  const Config config(sample_specs());
  EXPECT_EQ(config.section("optim").real("lr"), 0.1);
  EXPECT_EQ(config.section("").text("resume"), "none");
  EXPECT_EQ(config.section("resume").text("verify"), "full");
  EXPECT_EQ(config.section("").full_name("resume"), "resume");
  EXPECT_TRUE(config.section("optim").is_default("lr"));
  EXPECT_TRUE(config.section("nothing").values().empty());
  EXPECT_EQ(section_names(config.specs()), (std::vector<std::string>{"resume", "optim", "data", "ddp"}));
}

TEST(ConfigTest, AKeyMayBeDeclaredByTwoRowsOfOneType) {
  KeySpecs specs = sample_specs();
  specs.push_back({.name = "optim.lr", .type = KeyType::real, .default_value = "7", .help = ""});
  EXPECT_EQ(Config(specs).section("optim").real("lr"), 0.1);
  EXPECT_EQ(Config(specs).specs().size(), sample_specs().size());
  specs.back().type = KeyType::text;
  EXPECT_THROW(Config{specs}, std::logic_error);
}

/// Two optimizers, as rows of optim.name and in parts, of which one reads optim.momentum; both have a rate of their
/// own.
KeySpecs specs_with_choices() {
  struct Row {
    std::string name;
    std::string help;
    KeySpecs keys;
  };
  const std::vector<Row> rows = {
      {"sgd", "", {keys::real("optim.momentum", "0", ""), keys::real("optim.lr", "0.1", "")}},
      {"adam", "", {keys::real("optim.lr", "0.001", "")}}};
  return keys_of_rows({keys::choice("optim.name", "adam", "", {"sgd", "adam", "own"}), keys::real("optim.lr", "1", ""),
                       keys::texts("optim.part", "", "")},
                      rows, {"optim.name", "optim.part"});
}

/// The configuration after these lines of section optim.
Config config_of(const std::string& ini) {
  Config config(specs_with_choices());
  config.read_ini("[optim]\n" + ini, "a.ini");
  return config;
}

TEST(ConfigTest, TheDefaultIsThatOfTheChoice) {
  EXPECT_EQ(config_of("").section("optim").real("lr"), 0.001);
  EXPECT_EQ(config_of("name = sgd\n").section("optim").real("lr"), 0.1);
  EXPECT_EQ(config_of("name = own\n").section("optim").real("lr"), 1);
  EXPECT_EQ(config_of("name = sgd\nlr = auto\n").section("optim").real("lr"), 0.1);
  EXPECT_EQ(config_of("name = sgd\nlr = 7\n").section("optim").real("lr"), 7);
  EXPECT_TRUE(config_of("name = sgd\n").section("optim").is_default("lr"));
  EXPECT_EQ(config_of("name = sgd\n").effective("optim.lr").origin, "default of optim.name=sgd");
  const std::string resolved = config_of("name = sgd\n").to_ini();
  EXPECT_NE(resolved.find("\nlr = 0.1                                  # default of optim.name=sgd\n"),
            std::string::npos)
      << resolved;
  EXPECT_EQ(sentence_of([] { config_of("momentum = auto\n"); }), "a.ini:2: optim.momentum: 'auto' is not a number");
}

TEST(ConfigTest, AKeyThatNoChoiceReadsIsRefusedWhereAUserSetsIt) {
  const auto sentence = [](const std::string& ini) { return sentence_of([&] { config_of(ini).require_read(); }); };
  EXPECT_EQ(sentence("name = sgd\nmomentum = 0.9\n"), "");
  EXPECT_EQ(sentence("name = adam\nlr = 2\n"), "");
  EXPECT_EQ(sentence("name = own\nlr = 2\n"), "");
  EXPECT_EQ(sentence("momentum = 0.9\n"),
            "a.ini:2: optim.momentum is not read with optim.name=adam, only with optim.name=sgd; remove it, or change "
            "optim.name");
  EXPECT_EQ(sentence("momentum = 0.9\npart = head,names=fc,name=sgd\n"), "");
  Config stored(specs_with_choices());
  stored.read_ini("[optim]\nmomentum = 0.9\n", "run", OldNames::translated);
  EXPECT_NO_THROW(stored.require_read());
  stored.set("optim.momentum", "0.9", "derived");
  EXPECT_NO_THROW(stored.require_read());
  stored.set("optim.momentum", "0.9", "command line", Author::user);
  EXPECT_THROW(stored.require_read(), ConfigError);
}

TEST(ConfigTest, AnUnknownKeyNamesTheNearestOneAndTheChoicesThatReadIt) {
  EXPECT_EQ(sentence_of([] { config_of("momentun = 0.9\n"); }),
            "a.ini:2: key 'optim.momentun' is unknown; did you mean 'optim.momentum' of optim.name=sgd?");
  EXPECT_EQ(sentence_of([] { config_of("lrr = 0.9\n"); }),
            "a.ini:2: key 'optim.lrr' is unknown; did you mean 'optim.lr'?");
}

TEST(ConfigTest, ManyChoicesAreNotAllNamed) {
  const KeySpecs specs = {
      keys::text("a.kind", "x", ""),
      keys::read_by(keys::integer("a.size", "3", ""), "a.kind", {"k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"})};
  Config config(specs);
  config.set("a.size", "4", "here", Author::user);
  EXPECT_EQ(sentence_of([&] { config.require_read(); }),
            "here: a.size is not read with a.kind=x, only with a.kind=k1, k2, k3, k4, k5, k6 and 2 others; "
            "remove it, or change a.kind");
}

TEST(ConfigTest, AResolvedFileIsReadAsStored) {
  const std::string path = ::testing::TempDir() + "resolved.ini";
  std::ofstream(path) << config_of("name = adam\n").to_ini();
  Config config(specs_with_choices());
  config.read_file(path);
  EXPECT_EQ(config.section("optim").origin("momentum"), path + ":7");
  EXPECT_NO_THROW(config.require_read());
}

TEST(ConfigTest, ADefaultMustFitItsKey) {
  EXPECT_THROW(Config({{.name = "a.b", .type = KeyType::integer, .default_value = "1.5", .help = ""}}),
               std::logic_error);
}

TEST(ConfigTest, LaterWinsAndTheOriginFollows) {
  Config config(sample_specs());
  config.read_ini("[optim]\nlr = 1\n\nlr=2 # twice as much\n", "a.ini");
  EXPECT_EQ(config.section("optim").real("lr"), 2);
  EXPECT_EQ(config.section("optim").cite("lr"), "optim.lr (a.ini:4)");
  config.set("optim.lr", "3", "derived");
  EXPECT_EQ(config.section("optim").cite("lr"), "optim.lr (derived)");
}

TEST(ConfigTest, ReadsWhatPeopleWrite) {
  Config config(sample_specs());
  config.read_ini(
      "# a comment\r\n"
      "resume = auto\r\n"
      "data.path = /dotted/name\r\n"
      "  [ optim ]  # a section\r\n"
      "\t betas=0.5 , 0.75\r\n"
      "name = adamw\r\n"
      "[data]\n"
      "path =\n"
      "[optim]\n"
      "group = a = b, c\n"
      "[ddp]\n"
      "report = yes",
      "a.ini");
  EXPECT_EQ(config.section("").text("resume"), "auto");
  EXPECT_EQ(config.section("data").text("path"), "");
  EXPECT_EQ(config.section("optim").reals("betas"), (std::vector<double>{0.5, 0.75}));
  EXPECT_EQ(config.section("optim").text("name"), "adamw");
  EXPECT_EQ(config.section("optim").texts("group"), (std::vector<std::string>{"a = b, c"}));
  EXPECT_TRUE(config.section("ddp").boolean("report"));
  EXPECT_EQ(config.section("ddp").origin("report"), "a.ini:12");
}

TEST(ConfigTest, ARepeatableKeyCollectsTheLinesOfOneFile) {
  Config config(sample_specs());
  config.read_ini("[optim]\ngroup = a\ngroup = b\n", "a.ini");
  EXPECT_EQ(config.section("optim").texts("group"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.section("optim").origin("group"), "a.ini:2");
  config.read_ini("[optim]\ngroup = c\n", "b.ini");
  EXPECT_EQ(config.section("optim").texts("group"), (std::vector<std::string>{"c"}));
}

TEST(ConfigTest, SentencesForAFileThatIsWrong) {
  EXPECT_EQ(error_of("[optim]\n\nlr 0.1  # what\n"), "a.ini:3: 'lr 0.1' is neither 'key = value' nor '[section]'");
  EXPECT_EQ(error_of("[optim]\n = 1\n"), "a.ini:2: '= 1' is neither 'key = value' nor '[section]'");
  EXPECT_EQ(error_of("[optim\nlr = 1\n"), "a.ini:1: '[optim' is neither 'key = value' nor '[section]'");
  EXPECT_EQ(error_of("[optim]\nlr = -1\n"), "a.ini:2: optim.lr: '-1' is not a number > 0");
  EXPECT_EQ(error_of("[optim]\nname = adam\n"),
            "a.ini:2: optim.name: 'adam' is not one of: sgd, adamw; did you mean 'adamw'?");
  EXPECT_EQ(error_of("[optim]\nlrr = 1\n"), "a.ini:2: key 'optim.lrr' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of("[data]\nlr = 1\n"), "a.ini:2: key 'data.lr' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of("[data]\nresume = auto\n"), "a.ini:2: key 'data.resume' is unknown; did you mean 'resume'?");
  EXPECT_EQ(error_of("[ddp]\nsomething_else = auto\n"),
            "a.ini:2: key 'ddp.something_else' is unknown; --help lists the sections and --help=SECTION their keys");
  EXPECT_EQ(error_of("[optimm]\n"), "a.ini:1: section [optimm] is unknown; did you mean [optim]?");
  EXPECT_EQ(error_of("[zzzzzzzz]\n"), "a.ini:1: section [zzzzzzzz] is unknown; --help lists the sections");
}

TEST(ConfigTest, AnOptionThatIsWrittenAsAKeyIsExplained) {
  KeySpecs specs = sample_specs();
  KeySpec hooks = keys::texts("train.hooks", "", "");
  hooks.parts = {keys::text("profiler", "", "")};
  specs.push_back(hooks);
  Config config(specs);
  EXPECT_EQ(sentence_of([&] { config.set("train.hooks.profiler.steps", "3", "command line"); }),
            "command line: key 'train.hooks.profiler.steps' is unknown; an option is a part of a value, behind a name: "
            "train.hooks=NAME,option=value");
}

TEST(ConfigTest, AValueThatNoFileCouldHoldIsRefused) {
  Config config(sample_specs());
  const auto set = [&](const std::string& text) {
    return sentence_of([&] { config.set("data.path", text, "command line"); });
  };
  EXPECT_EQ(set("a\nb"), "command line: data.path: a value must not contain control characters");
  EXPECT_EQ(set("  a#b\t"), "");
  EXPECT_EQ(config.section("data").text("path"), "  a#b\t");
  config.set("optim.lr", " 3 ", "command line");
  EXPECT_EQ(config.section("optim").real("lr"), 3);
}

TEST(ConfigTest, TheResolvedFileReadsBackToTheSameValues) {
  Config config(sample_specs());
  EXPECT_EQ(values_only(read_back(config)), values_only(config.to_json()));
  config.set("resume", "runs/a = b", "command line");
  config.set("optim.lr", "3e-4", "command line");
  config.set("optim.betas", "0.1,0.2", "a.ini:1");
  config.set("optim.group", "decay = 0", "command line");
  config.set("optim.group", "bias [x]", "command line");
  config.set("data.path", "", "derived");
  config.set("ddp.report", "on", "a\nb.ini:7");
  EXPECT_NE(values_only(config.to_json()), values_only(Config(sample_specs()).to_json()));
  EXPECT_EQ(values_only(read_back(config)), values_only(config.to_json()));
}

// '#' begins a comment after a blank only; a value that needs quotes gets them.
TEST(ConfigTest, TheResolvedFileKeepsSignsQuotesAndBlanks) {
  for (const std::string value : {"/data/set#2", "a #b", "#a", "a;b", "; a", "\"", "\"a\"", "\"a\" b", "a \"b\"", " a",
                                  "a\t", " ", "a\t#b", "\" # \"", "[a]", "=", "a = \"b # c\""}) {
    Config config(sample_specs());
    config.set("data.path", value, "a #1");
    config.set("optim.group", value, "command line");
    const Config back = [&] {
      Config read(sample_specs());
      read.read_ini(config.to_ini(), "a.ini");
      return read;
    }();
    EXPECT_EQ(back.section("data").text("path"), value);
    EXPECT_EQ(back.section("optim").texts("group"), std::vector<std::string>{value});
  }
}

/// The path that a line of an INI file sets.
std::string path_of(const std::string& line) {
  ::setenv("HOME", "/home/me", 1);
  Config config(sample_specs());
  config.read_ini("[data]\n" + line + "\n", "a.ini");
  return config.section("data").text("path");
}

TEST(ConfigTest, APathIsReadAsAShellReadsIt) {
  EXPECT_EQ(path_of("path = ~/data"), "/home/me/data");
  EXPECT_EQ(path_of("path = \"~/data\""), "/home/me/data");
  EXPECT_EQ(path_of("path = /data/run#1"), "/data/run#1");
  EXPECT_EQ(path_of("path = a #b"), "a");
  EXPECT_EQ(path_of("path = \"a #b\""), "a #b");
  EXPECT_EQ(
      sentence_of([] { path_of("path = ${SCRATCH}/a"); }),
      "a.ini:2: data.path: '${SCRATCH}/a': the variable ${SCRATCH} of the environment is not replaced here; write "
      "the path in full");
  EXPECT_EQ(sentence_of([] { path_of("path = ~no-such-user/a"); }),
            "a.ini:2: data.path: '~no-such-user/a': the home folder is unknown; write the path in full");
}

TEST(ConfigTest, AKeyThatAllChoicesButSomeReadIsRefusedWithThese) {
  const auto refusal = [](const std::string& ini, OldNames old_names = OldNames::refused) {
    KeySpecs specs = sample_specs();
    specs.push_back(keys::not_read_by(keys::integer("ddp.ranks", "0", ""), "ddp.report", {"false", "no"}));
    specs.push_back(keys::not_read_by(keys::real("optim.until", "1", ""), "optim.group", {""}));
    Config config(specs);
    config.read_ini(ini, "a.ini", old_names);
    return sentence_of([&] { config.require_read(); });
  };
  EXPECT_EQ(refusal("[ddp]\nranks = 2\n"),
            "a.ini:2: ddp.ranks is not read with ddp.report=no; remove it, or change ddp.report");
  EXPECT_EQ(refusal("[ddp]\nranks = 2\n", OldNames::translated), "");
  EXPECT_EQ(refusal("[ddp]\nranks = 2\nreport = true\n"), "");
  EXPECT_EQ(refusal("[ddp]\nreport = false\n"), "");
  EXPECT_EQ(refusal("[optim]\nuntil = 0.5\n"),
            "a.ini:2: optim.until is not read without optim.group; remove it, or set optim.group");
  EXPECT_EQ(refusal("[optim]\nuntil = 0.5\ngroup = a\n"), "");
}

TEST(ConfigTest, ACommentFollowsABlankOrBeginsALine) {
  const auto path_of = [](const std::string& line) {
    Config config(sample_specs());
    config.read_ini("[data] # of [it]\n" + line + "\n", "a.ini");
    return config.section("data").text("path");
  };
  EXPECT_EQ(path_of("path = /data/set#2"), "/data/set#2");
  EXPECT_EQ(path_of("path = /data/set#2 # the second"), "/data/set#2");
  EXPECT_EQ(path_of("path=#2"), "#2");
  EXPECT_EQ(path_of("path = # nothing"), "");
  EXPECT_EQ(path_of("path =\t\"a # b\"  # c \"d\""), "a # b");
  EXPECT_EQ(path_of("path = \"a \"\"b\"\" \""), "a \"b\" ");
  EXPECT_EQ(path_of("path = \"a\" and \"b\" # c"), "\"a\" and \"b\"");
  EXPECT_EQ(path_of("path = \"a # b"), "\"a");
  EXPECT_EQ(path_of("  # path = a"), "");
}

TEST(ConfigTest, TheResolvedFileNamesOrigins) {
  Config config(sample_specs());
  config.set("optim.lr", "3e-4", "a.ini:3");
  EXPECT_EQ(config.to_ini(),
            "# The value of every key; --config=FILE reads it back.\n"
            "resume = none                             # default\n"
            "\n[resume]\n"
            "verify = full                             # default\n"
            "\n[optim]\n"
            "lr = 3e-4                                 # a.ini:3\n"
            "betas = 0.9, 0.99                         # default\n"
            "name = sgd                                # default\n"
            "steps = 3                                 # default\n"
            "# group is not set\n"
            "\n[data]\n"
            "path =                                    # default\n"
            "sizes = 1,2                               # default\n"
            "\n[ddp]\n"
            "report = no                               # default\n");
}

TEST(ConfigTest, JsonHoldsTypedValues) {
  Config config(sample_specs());
  config.set("optim.lr", "3e-4", "command line");
  config.set("data.path", "\xff", "command line");
  const auto json = nlohmann::json::parse(config.to_json());
  EXPECT_EQ(json["optim.lr"]["value"], 3e-4);
  EXPECT_EQ(json["optim.lr"]["origin"], "command line");
  EXPECT_EQ(json["optim.betas"]["value"], (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(json["optim.steps"]["value"], 3);
  EXPECT_TRUE(json["optim.steps"]["value"].is_number_integer());
  EXPECT_EQ(json["optim.group"]["value"], nlohmann::json::array());
  EXPECT_EQ(json["data.sizes"]["value"], (std::vector<int>{1, 2}));
  EXPECT_EQ(json["ddp.report"]["value"], false);
  EXPECT_EQ(json["resume"]["value"], "none");
  EXPECT_EQ(json["data.path"]["value"], "\xEF\xBF\xBD");
  EXPECT_EQ(json.size(), sample_specs().size());
}

TEST(ConfigTest, ExplainIsAnAlignedTable) {
  Config config(sample_specs());
  config.set("optim.group", "a", "command line");
  config.set("optim.group", "b", "command line");
  config.set("data.path", std::string(40, 'x'), "a.ini:9");
  EXPECT_EQ(config.explain(),
            "key            value      from\n"
            "resume         none       default\n"
            "resume.verify  full       default\n"
            "optim.lr       0.1        default\n"
            "optim.betas    0.9, 0.99  default\n"
            "optim.name     sgd        default\n"
            "optim.steps    3          default\n"
            "optim.group    a          command line\n"
            "optim.group    b          command line\n"
            "data.path      " +
                std::string(40, 'x') +
                "  a.ini:9\n"
                "data.sizes     1,2        default\n"
                "ddp.report     no         default\n");
  EXPECT_NE(Config(sample_specs()).explain().find("optim.group    (not set)  default\ndata.path      (empty)"),
            std::string::npos);
}

}  // namespace config_test
}  // namespace lockstep::config
