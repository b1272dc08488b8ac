// SPDX-License-Identifier: BSD-3-Clause
#include "config/invocation.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

#include "sample_specs.hpp"

namespace lockstep::config {
namespace invocation_test {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Invocation parse_words(const Words& words) { return parse(words, sample_specs(), sample_commands()); }

std::string error_of(const Words& words) {
  return sentence_of([&] { parse_words(words); });
}

class InvocationTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("config_test." + std::to_string(::getpid()));
};

TEST_F(InvocationTest, NoArgumentMeansTrainWithDefaults) {
  const Invocation invocation = parse_words({});
  EXPECT_EQ(invocation.command, "train");
  EXPECT_TRUE(invocation.config.section("optim").is_default("lr"));
  EXPECT_FALSE(invocation.wants_help || invocation.wants_version);
}

TEST_F(InvocationTest, CommandsAreKnownByName) {
  EXPECT_EQ(parse_words({"train"}).command, "train");
  EXPECT_EQ(parse_words({"--optim.lr=1", "config"}).command, "config");
  const Invocation eval = parse_words({"eval", "--from", "runs/a"});
  EXPECT_EQ(eval.command, "eval");
  EXPECT_EQ(eval.options.at("from"), "runs/a");
  EXPECT_EQ(parse_words({"eval", "--from=runs/a"}).options.at("from"), "runs/a");
}

TEST_F(InvocationTest, KeysAreSetAndTheLastWins) {
  const Config config =
      parse_words({"--optim.lr=1", "--optim.lr", "2", "--resume=auto", "--data.sizes", "-3,4", "--ddp.report=true",
                   "--optim.group=a", "--data.path=", "--optim.group=b=c", "--resume.verify=none"})
          .config;
  EXPECT_EQ(config.section("optim").real("lr"), 2);
  EXPECT_EQ(config.section("optim").origin("lr"), "command line");
  EXPECT_EQ(config.section("").text("resume"), "auto");
  EXPECT_EQ(config.section("resume").text("verify"), "none");
  EXPECT_EQ(config.section("data").integers("sizes"), (std::vector<std::int64_t>{-3, 4}));
  EXPECT_TRUE(config.section("ddp").boolean("report"));
  EXPECT_EQ(config.section("optim").texts("group"), (Words{"a", "b=c"}));
  EXPECT_EQ(config.section("data").text("path"), "");
  EXPECT_EQ(config.section("data").origin("path"), "command line");
}

TEST_F(InvocationTest, TheHomeFolderIsFoundWhereAShellDoesNotReplaceIt) {
  ::setenv("HOME", path("").c_str(), 1);
  write("a.ini", "[optim]\nlr = 2\n");
  const Invocation invocation = parse_words(
      {"eval", "--config=~/a.ini", "--from", "~/run", "--data.path=~/data", "--optim.group=memory,path=~/x"});
  EXPECT_EQ(invocation.config.section("optim").real("lr"), 2);
  EXPECT_EQ(invocation.options.at("from"), path("run"));
  EXPECT_EQ(invocation.config.section("data").text("path"), path("data"));
  EXPECT_EQ(invocation.config.section("optim").texts("group"), Words{"memory,path=" + path("x")});
  EXPECT_EQ(parse_words({"--data.path=/a/run#1 #2"}).config.section("data").text("path"), "/a/run#1 #2");
}

TEST_F(InvocationTest, VariablesOfTheEnvironmentAreRefused) {
  const std::string why = ": the variable $RUN of the environment is not replaced here; write the path in full";
  EXPECT_EQ(error_of({"--data.path=/a/$RUN"}), "command line: data.path: '/a/$RUN'" + why);
  EXPECT_EQ(error_of({"--optim.group=memory,path=$RUN/x"}), "command line: optim.group: '$RUN/x'" + why);
  EXPECT_EQ(error_of({"eval", "--from=$RUN/a"}), "command line: '$RUN/a'" + why);
  EXPECT_EQ(error_of({"--config=$RUN/a.ini"}), "command line: '$RUN/a.ini'" + why);
}

TEST_F(InvocationTest, FilesFollowOneAnotherAndTheCommandLineWins) {
  const IniText base = {"checkpoint", "[optim]\nlr = 1\nsteps = 1\nname = adamw\n[data]\npath = base\n"};
  const std::string a = write("a.ini", "[optim]\nlr = 2\nsteps = 2\n");
  const std::string b = write("b.ini", "\xEF\xBB\xBF[optim]\nlr = 3\n");
  const Invocation invocation = parse({"--optim.lr=4", "--config", a, "train", "--config=" + b, "--data.path=mine"},
                                      sample_specs(), sample_commands(), {base});
  EXPECT_EQ(invocation.files, (Words{a, b}));
  const Section& optim = invocation.config.section("optim");
  EXPECT_EQ(optim.cite("lr"), "optim.lr (command line)");
  EXPECT_EQ(optim.real("lr"), 4);
  EXPECT_EQ(optim.cite("steps"), "optim.steps (" + a + ":3)");
  EXPECT_EQ(optim.integer("steps"), 2);
  EXPECT_EQ(optim.cite("name"), "optim.name (checkpoint:4)");
  EXPECT_EQ(invocation.config.section("data").text("path"), "mine");
  EXPECT_EQ(parse_words({"--config", b}).config.section("optim").real("lr"), 3);
}

TEST_F(InvocationTest, OldNamesAreForStoredConfigurationsAlone) {
  KeySpecs specs = sample_specs();
  specs.push_back({.name = "train.lr_decay",
                   .type = KeyType::real,
                   .default_value = "1",
                   .help = "",
                   .old_names = {"optim.decay", "confi"},
                   .replaces = {{.key = "optim.decays",
                                 .translate = [](const std::string& former, const std::string&) { return former; },
                                 .hint = "set a number"}}});
  const auto sentence = [&specs](const Words& words) {
    return sentence_of([&] { parse(words, specs, sample_commands()); });
  };
  const std::string renamed = "key 'optim.decay' was renamed to 'train.lr_decay'";
  EXPECT_EQ(sentence({"--optim.decay=2"}), "command line: " + renamed);
  EXPECT_EQ(sentence({"--optim.decay", "2"}), "command line: " + renamed);
  EXPECT_EQ(sentence({"--optim.decay="}), "command line: " + renamed);
  EXPECT_EQ(sentence({"--confi=2"}), "command line: key 'confi' was renamed to 'train.lr_decay'");
  EXPECT_EQ(sentence({"--optim.decays=2"}), "command line: optim.decays=2 was replaced by train.lr_decay=2");
  EXPECT_EQ(sentence({"--optim.decays="}), "command line: optim.decays= was replaced by train.lr_decay; set a number");
  const std::string file = write("old.ini", "[optim]\ndecay = 2\n");
  EXPECT_EQ(sentence({"--config", file}), file + ":2: " + renamed);
  const IniText stored = {"checkpoint", "[optim]\ndecay = 2\n"};
  EXPECT_EQ(parse({}, specs, sample_commands(), {stored}).config.section("train").cite("lr_decay"),
            "train.lr_decay (checkpoint:2)");
  EXPECT_EQ(parse({"--train.lr_decay=3"}, specs, sample_commands(), {stored}).config.section("train").real("lr_decay"),
            3);
}

TEST_F(InvocationTest, HelpAndVersionReadNothing) {
  EXPECT_TRUE(parse_words({"-h"}).wants_help);
  EXPECT_EQ(parse_words({"--help"}).help_section, "");
  EXPECT_EQ(parse_words({"--help=optim", "--config=/nowhere.ini"}).help_section, "optim");
  EXPECT_TRUE(parse_words({"eval", "--help"}).wants_help);
  EXPECT_TRUE(parse_words({"--version", "--config=/nowhere.ini"}).wants_version);
}

TEST_F(InvocationTest, SentencesForWhatIsNotAKey) {
  EXPECT_EQ(error_of({"--optm.lr=1"}), "command line: key 'optm.lr' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of({"--optim.l=1"}), "command line: key 'optim.l' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of({"--optm.lr="}), "command line: key 'optm.lr' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of({"--lr", "1"}), "command line: key 'lr' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of({"--lr=1"}), "command line: key 'lr' is unknown; did you mean 'optim.lr'?");
  EXPECT_EQ(error_of({"--confg=a.ini"}), "command line: '--confg' is unknown; did you mean '--config'?");
  EXPECT_EQ(error_of({"-np", "2"}), "command line: '-np' is unknown; keys are written --section.key=value");
  EXPECT_EQ(error_of({"-np=2"}), "command line: '-np=2' is unknown; keys are written --section.key=value");
  EXPECT_EQ(error_of({"optim.lr=1"}),
            "command line: 'optim.lr=1' is not expected here; keys are written --section.key=value");
  EXPECT_EQ(error_of({"train", "eval"}),
            "command line: 'eval' is not expected here; keys are written --section.key=value");
  EXPECT_EQ(error_of({"evl"}),
            "command line: command 'evl' is unknown; choose one of: train, eval, predict, export, config, schedule, "
            "data, report, compare (did you mean 'eval'?)");
  EXPECT_EQ(
      error_of({"something"}),
      "command line: command 'something' is unknown; choose one of: train, eval, predict, export, config, schedule, "
      "data, report, compare");
}

TEST_F(InvocationTest, SentencesForValues) {
  EXPECT_EQ(error_of({"--optim.lr=0"}), "command line: optim.lr: '0' is not a number > 0");
  EXPECT_EQ(error_of({"--optim.steps=2.5"}), "command line: optim.steps: '2.5' is not an integer >= 1");
  EXPECT_EQ(error_of({"--optim.betas=0.5,2"}),
            "command line: optim.betas: '0.5,2' is not numbers in [0, 1], separated by commas");
  EXPECT_EQ(error_of({"--optim.lr="}), "command line: optim.lr: '' is not a number > 0");
  EXPECT_EQ(error_of({"--ddp.report=maybe"}), "command line: ddp.report: 'maybe' is not true or false");
  EXPECT_EQ(error_of({"--optim.lr"}), "command line: --optim.lr needs a value: a number > 0");
  const std::string bare = "command line: --ddp.report needs a value: write --ddp.report=true or --ddp.report=false";
  EXPECT_EQ(error_of({"--ddp.report"}), bare);
  EXPECT_EQ(error_of({"--ddp.report", "--optim.lr=1"}), bare);
  EXPECT_EQ(error_of({"--config"}), "command line: --config needs a path");
  EXPECT_EQ(error_of({"--config="}), "command line: --config needs a path");
  EXPECT_EQ(error_of({"--config", "--optim.lr=1"}), "command line: --config needs a path");
  EXPECT_NE(error_of({"--version=3"}), "");
}

TEST_F(InvocationTest, OptionsBelongToTheirCommand) {
  const Invocation config = parse_words({"config", "--groups", "--optim.lr=1", "--verbose"});
  EXPECT_EQ(config.options, (std::map<std::string, std::string>{{"groups", ""}, {"verbose", ""}}));
  EXPECT_EQ(config.config.section("optim").real("lr"), 1);
  EXPECT_EQ(parse_words({"--plot", "out.svg", "schedule"}).options.at("plot"), "out.svg");
  EXPECT_TRUE(parse_words({"schedule"}).options.empty());
  EXPECT_EQ(error_of({"--groups"}), "command line: --groups is an option of the command config");
  EXPECT_EQ(error_of({"config", "--plot=a.svg"}), "command line: --plot is an option of the command schedule");
  EXPECT_EQ(error_of({"config", "--group"}), "command line: '--group' is unknown; did you mean '--groups'?");
  EXPECT_EQ(error_of({"schedule", "--plot="}), "command line: schedule needs --plot FILE (Output SVG file)");
  EXPECT_EQ(error_of({"schedule", "--plot"}), "command line: --plot needs a path");
  EXPECT_NE(error_of({"config", "--groups=all"}), "");
}

TEST_F(InvocationTest, SomeCommandsTakeFolders) {
  EXPECT_EQ(parse_words({"report", "runs/a"}).command, "report");
  EXPECT_EQ(parse_words({"report", "runs/a"}).words, Words{"runs/a"});
  const Invocation compare = parse_words({"compare", "runs/a", "--out=c.html", "runs/b"});
  EXPECT_EQ(compare.words, (Words{"runs/a", "runs/b"}));
  EXPECT_EQ(compare.options.at("out"), "c.html");
  EXPECT_TRUE(parse_words({"config"}).words.empty());
  EXPECT_TRUE(parse_words({}).words.empty());
  EXPECT_EQ(error_of({"report"}), "command line: report needs RUN, the folder of a run");
  EXPECT_EQ(error_of({"compare", "runs/a"}), "command line: compare needs another RUN, the folder of a run");
  EXPECT_EQ(parse_words({"export", "runs/a", "--to=a.pt"}).options.at("to"), "a.pt");
  EXPECT_EQ(error_of({"export", "runs/a"}), "command line: export needs --to FILE (Output file)");
  EXPECT_EQ(error_of({"report", "runs/a", "runs/b"}),
            "command line: 'runs/b' is not expected here; keys are written --section.key=value");
}

TEST_F(InvocationTest, FromBelongsToEvalAndPredict) {
  EXPECT_TRUE(parse_words({"eval"}).options.empty());
  EXPECT_EQ(parse_words({"predict", "--from=runs/a"}).options.at("from"), "runs/a");
  EXPECT_EQ(error_of({"predict", "--predictions=a.jsonl"}),
            "command line: --predictions is an option of the command eval");
  EXPECT_EQ(error_of({"eval", "--from="}), "command line: eval needs --from PATH (Folder of a run)");
  EXPECT_TRUE(parse_words({"data", "--json"}).options.contains("json"));
  EXPECT_TRUE(parse_words({"eval", "--json"}).options.contains("json"));
  EXPECT_EQ(error_of({"predict", "--json"}), "command line: --json is an option of the command eval");
  EXPECT_EQ(error_of({"--from", "runs/a"}),
            "command line: --from is an option of the command eval; see --init.from and --resume for training");
}

TEST_F(InvocationTest, SentencesForAFileThatCannotBeRead) {
  const auto sentence = [this](const std::string& name, const std::string& reason) {
    return "config file " + path(name) + " cannot be read: " + reason;
  };
  EXPECT_EQ(error_of({"--config", path("none.ini")}), sentence("none.ini", "No such file or directory"));
  EXPECT_EQ(error_of({"--config", path(".")}), sentence(".", "Is a directory"));
  write("plain", "x");
  EXPECT_EQ(error_of({"--config", path("plain/a.ini")}), sentence("plain/a.ini", "Not a directory"));
  write("binary.ini", std::string("[optim]\nlr = 1\0\1\2", 17));
  EXPECT_EQ(error_of({"--config", path("binary.ini")}), sentence("binary.ini", "it is a binary file"));
  write("long.ini", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(error_of({"--config", path("long.ini")}), sentence("long.ini", "it is larger than 1 MiB"));
  write("wrong.ini", "[optim]\nlr = none\n");
  EXPECT_EQ(error_of({"--config", path("wrong.ini")}), path("wrong.ini") + ":2: optim.lr: 'none' is not a number > 0");
}

TEST_F(InvocationTest, TheEnvironmentSetsNoKey) {
  ::setenv("OPTIM_LR", "5", 1);
  ::setenv("optim.lr", "5", 1);
  EXPECT_EQ(parse_words({}).config.section("optim").real("lr"), 0.1);
}

TEST_F(InvocationTest, AResolvedFileIsABaseForTheNextRun) {
  const Config first = parse_words({"--optim.lr=0.25", "--optim.group=a", "--optim.group=b"}).config;
  const Config second = parse({}, sample_specs(), sample_commands(), {{"runs/a", first.to_ini()}}).config;
  EXPECT_EQ(second.section("optim").real("lr"), 0.25);
  EXPECT_EQ(second.section("optim").texts("group"), (Words{"a", "b"}));
  EXPECT_TRUE(second.section("optim").origin("lr").starts_with("runs/a:"));
}

}  // namespace invocation_test
}  // namespace lockstep::config
