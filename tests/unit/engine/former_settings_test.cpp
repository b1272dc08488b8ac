// SPDX-License-Identifier: BSD-3-Clause
// Settings of earlier versions, in a configuration with the keys of the program.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "engine/session.hpp"

namespace lockstep::engine {
namespace former_settings_test {

using config::Config;
using config::OldNames;

Config stored(const std::string& ini) {
  Config config(all_keys(builtin_registry()));
  config.read_ini(ini, "run", OldNames::translated);
  return config;
}

std::string refusal(const std::string& name, const std::string& text) {
  Config config(all_keys(builtin_registry()));
  try {
    config.set(name, text, "command line");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(FormerSettingsTest, PatternsOfPhases) {
  const auto every = [](const std::string& pattern) {
    return stored("[train]\nphases = " + pattern + "\n[eval]\nevery_epochs = 1\n").section("eval").text("every");
  };
  EXPECT_EQ(every("train:2,test"), "2epochs");
  EXPECT_EQ(every("train,test"), "1epochs");
  EXPECT_EQ(every("train:2,train,test"), "3epochs");
  for (const char* const other :
       {"", "train:3", "train,test,train:3,test", "test", "train:x,test", "train:2,test,train"}) {
    EXPECT_EQ(every(other), "1epochs") << other;
  }
  EXPECT_EQ(refusal("train.phases", "train:2,test"),
            "command line: train.phases=train:2,test was replaced by eval.every=2epochs");
  EXPECT_EQ(refusal("train.phases", "train:3"),
            "command line: train.phases=train:3 was replaced by eval.every; list other epochs as changes: 1epochs then "
            "2epochs@2epochs");
}

// A stored configuration has every key, in any order.
TEST(FormerSettingsTest, TimesOfEvaluations) {
  struct Case {
    std::string when;
    std::string interval;
    std::string every_epochs;
    std::string expected;
  };
  for (const Case& c :
       {Case{"regular", "0", "1", "1epochs"}, Case{"regular", "0", "2", "2epochs"},
        Case{"regular", "0", "1,11:2", "1epochs then 2epochs@11epochs"}, Case{"regular", "500", "1", "500"},
        Case{"regular", "500", "2", "500"}, Case{"regular", "500,10000:100", "2", "500 then 100@10000"},
        Case{"regular", "0,7:2", "1", "never then 2@7"}, Case{"end", "0", "1", "end"}, Case{"end", "500", "2", "end"},
        Case{"never", "500", "2", "never"}}) {
    std::vector<std::string> lines = {"when = " + c.when, "interval = " + c.interval,
                                      "every_epochs = " + c.every_epochs};
    std::ranges::sort(lines);
    do {
      const std::string ini = "[eval]\n" + lines[0] + "\n" + lines[1] + "\n" + lines[2] + "\n";
      EXPECT_EQ(stored(ini).section("eval").text("every"), c.expected) << ini;
    } while (std::ranges::next_permutation(lines).found);
  }
  EXPECT_EQ(stored("[eval]\nbegin_epoch = 1\n").section("eval").text("begin"), "0");
  EXPECT_EQ(stored("[eval]\nbegin_epoch = 3\n").section("eval").text("begin"), "3epochs");
  EXPECT_EQ(refusal("eval.when", "end"), "command line: eval.when=end was replaced by eval.every=end");
  EXPECT_EQ(refusal("eval.when", "regular"), "command line: eval.when=regular was replaced by eval.every=1epochs");
  EXPECT_EQ(refusal("eval.interval", "500,10000:100"),
            "command line: eval.interval=500,10000:100 was replaced by eval.every=500 then 100@10000");
  EXPECT_EQ(refusal("eval.every_epochs", "2"), "command line: eval.every_epochs=2 was replaced by eval.every=2epochs");
  EXPECT_EQ(refusal("eval.every_epochs", "two"),
            "command line: eval.every_epochs=two was replaced by eval.every; see --help=eval");
  EXPECT_EQ(refusal("eval.begin_epoch", "2"), "command line: eval.begin_epoch=2 was replaced by eval.begin=2epochs");
}

TEST(FormerSettingsTest, TimesOfCheckpoints) {
  const auto every = [](const std::string& lines) { return stored("[ckpt]\n" + lines).section("ckpt").text("every"); };
  EXPECT_EQ(every("every_steps = 0\nevery_epochs = 0\nevery_secs = 900\n"), "15min");
  EXPECT_EQ(every("every_steps = 50\nevery_epochs = 0\nevery_secs = 900\n"), "50+15min");
  EXPECT_EQ(every("every_secs = 0\nevery_epochs = 2\nevery_steps = 50\n"), "50+2epochs");
  EXPECT_EQ(every("every_secs = 0\nevery_epochs = 0\nevery_steps = 0\n"), "never");
  EXPECT_EQ(every("every_secs = 90.5\n"), "90.5s");
  EXPECT_EQ(refusal("ckpt.every_steps", "50"), "command line: ckpt.every_steps=50 was replaced by ckpt.every=50+15min");
  EXPECT_EQ(refusal("ckpt.every_epochs", "1"),
            "command line: ckpt.every_epochs=1 was replaced by ckpt.every=1epochs+15min");
  EXPECT_EQ(refusal("ckpt.every_secs", "0"), "command line: ckpt.every_secs=0 was replaced by ckpt.every=never");
  EXPECT_EQ(refusal("ckpt.every_secs", "3600"), "command line: ckpt.every_secs=3600 was replaced by ckpt.every=1h");
  EXPECT_EQ(refusal("ckpt.every_secs", "often"),
            "command line: ckpt.every_secs=often was replaced by ckpt.every; see --help=ckpt");
}

TEST(FormerSettingsTest, OtherKeysOfRepeatedActionsAndMetrics) {
  const Config config = stored(
      "[ckpt]\nmode = sharded\nbest_metric = val/accuracy\nbest_rule = greater\nkeep_age = 1.5\n"
      "[log]\ninterval = 7\nconsole_secs = 0.5\n[ema]\ninterval = 2\nbegin = 100\nbegin_epoch = 0\n");
  EXPECT_EQ(config.section("ckpt").text("layout"), "shards");
  EXPECT_EQ(config.section("ckpt").text("metric"), "val/accuracy");
  EXPECT_EQ(config.section("ckpt").text("better"), "higher");
  EXPECT_EQ(config.section("ckpt").real("keep_age_h"), 1.5);
  EXPECT_EQ(config.section("log").text("every"), "7");
  EXPECT_EQ(config.section("log").real("console_s"), 0.5);
  EXPECT_EQ(config.section("ema").text("every"), "2");
  EXPECT_EQ(config.section("ema").text("begin"), "100");
  EXPECT_EQ(stored("[ema]\nbegin = 0\nbegin_epoch = 2\n").section("ema").text("begin"), "2epochs");
  EXPECT_EQ(stored("[ckpt]\nmode = replicated\n").section("ckpt").text("layout"), "folder");
  EXPECT_EQ(stored("[ckpt]\nmode = single\n").section("ckpt").text("layout"), "file");
  EXPECT_EQ(refusal("ckpt.mode", "sharded"), "command line: ckpt.mode=sharded was replaced by ckpt.layout=shards");
  EXPECT_EQ(refusal("ckpt.mode", "local"),
            "command line: ckpt.mode=local was replaced by ckpt.layout; use folder, shards or file");
  EXPECT_EQ(refusal("ckpt.best_rule", "less"), "command line: ckpt.best_rule=less was replaced by ckpt.better=lower");
  EXPECT_EQ(refusal("ckpt.best_metric", "loss"), "command line: key 'ckpt.best_metric' was renamed to 'ckpt.metric'");
  EXPECT_EQ(refusal("ckpt.keep_age", "1"), "command line: key 'ckpt.keep_age' was renamed to 'ckpt.keep_age_h'");
  EXPECT_EQ(refusal("log.interval", "1"), "command line: key 'log.interval' was renamed to 'log.every'");
  EXPECT_EQ(refusal("log.console_secs", "1"), "command line: key 'log.console_secs' was renamed to 'log.console_s'");
  EXPECT_EQ(refusal("ema.interval", "1"), "command line: key 'ema.interval' was renamed to 'ema.every'");
  EXPECT_EQ(refusal("ema.begin_epoch", "2"), "command line: ema.begin_epoch=2 was replaced by ema.begin=2epochs");
}

TEST(FormerSettingsTest, OptionsOfHooksAndRules) {
  const auto hook = [](const std::string& text) {
    return stored("[train]\nhooks = " + text + "\n").section("train").texts("hooks").front();
  };
  EXPECT_EQ(hook("memory,interval=5"), "memory,every=5");
  EXPECT_EQ(hook("parameter_statistics,interval=5,bins=7"), "parameter_statistics,every=5,bins=7");
  EXPECT_EQ(hook("precise_bn,every_epochs=2"), "precise_bn,every=2epochs");
  EXPECT_EQ(hook("precise_bn,samples=24,every_epochs=0"), "precise_bn,samples=24,every=1");
  EXPECT_EQ(hook("empty_cache,interval=5"), "empty_cache,every=5+1epochs");
  EXPECT_EQ(hook("empty_cache,interval=5,epochs=false,evaluations=false"), "empty_cache,every=5,evaluations=false");
  EXPECT_EQ(hook("empty_cache,epochs=false"), "empty_cache,every=never");
  EXPECT_EQ(hook("early_stopping,rule=greater"), "early_stopping,better=higher");
  const auto rule = [](const std::string& text) {
    return stored("[sched]\nrule = " + text + "\n").section("sched").texts("rule").front();
  };
  EXPECT_EQ(rule("plateau,monitor=val/loss,better=less,factor=0.5"), "plateau,metric=val/loss,better=lower,factor=0.5");
  EXPECT_EQ(rule("plateau,better=greater"), "plateau,better=higher");
  EXPECT_EQ(rule("cosine,begin=10"), "cosine,begin=10");
}

// A key that keeps its name, with values of another form.
TEST(FormerSettingsTest, EpochsOfUnfreezing) {
  const auto unfreeze = [](const std::string& text) {
    return stored("[finetune]\nunfreeze = " + text + "\n").section("finetune").text("unfreeze");
  };
  EXPECT_EQ(unfreeze("layer4@2e"), "layer4@2epochs");
  EXPECT_EQ(unfreeze("layer4/fc@100, layer3@2e"), "layer4/fc@100,layer3@2epochs");
  EXPECT_EQ(unfreeze("layer4@100,stage@2epochs"), "layer4@100,stage@2epochs");
  EXPECT_EQ(refusal("finetune.unfreeze", "layer4@2e"),
            "command line: finetune.unfreeze=layer4@2e was replaced by finetune.unfreeze=layer4@2epochs");
  EXPECT_EQ(refusal("finetune.unfreeze", "layer4@2epochs"), "");
}

TEST(FormerSettingsTest, HooksThatFreeze) {
  const auto unfreeze = [](const std::string& hooks, const std::string& more = "") {
    return stored("[train]\n" + hooks + "[finetune]\nunfreeze = " + more + "\n").section("finetune").text("unfreeze");
  };
  EXPECT_EQ(unfreeze("hooks = freeze,names=hidden*/head.bias,until=3\n"), "hidden*/head.bias@3");
  EXPECT_EQ(unfreeze("hooks = freeze,until=3,names=a,priority=low\nhooks = freeze,names=b,until=5\n", "c@2epochs"),
            "c@2epochs,a@3,b@5");
  for (const char* const never : {"freeze,names=a", "freeze,names=a,until=0", "freeze,until=3", "freeze"}) {
    EXPECT_EQ(unfreeze("hooks = " + std::string(never) + "\n"), "") << never;
  }
  const Config others = stored("[train]\nhooks = memory\nhooks = freeze,names=a,until=3\n");
  EXPECT_EQ(others.section("train").texts("hooks"), std::vector<std::string>{"memory"});
  EXPECT_EQ(refusal("train.hooks", "freeze,names=a,until=3"),
            "command line: train.hooks=freeze,names=a,until=3 was replaced by finetune.unfreeze=a@3");
  EXPECT_EQ(refusal("train.hooks", "freeze,names=a"),
            "command line: train.hooks=freeze,names=a was replaced by finetune.unfreeze; parameters that are never "
            "updated are those that finetune.train does not name");
}

// A program may have such a row again.
TEST(FormerSettingsTest, RowsOfAProgramAreNotFormerOnes) {
  Registry registry;
  registry.hooks.push_back({.name = "freeze", .help = "", .keys = {}, .make = {}});
  Config config(all_keys(registry));
  config.set("train.hooks", "freeze,names=a", "command line");
  EXPECT_EQ(config.section("train").texts("hooks"), std::vector<std::string>{"freeze,names=a"});
}

}  // namespace former_settings_test
}  // namespace lockstep::engine
