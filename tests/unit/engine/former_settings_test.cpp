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
  EXPECT_EQ(refusal("train.hooks", "memory,interval=5"),
            "command line: train.hooks=memory,interval=5 is the form of earlier versions; write "
            "train.hooks=memory,every=5");
  EXPECT_EQ(refusal("sched.rule", "plateau,monitor=val/loss,better=less"),
            "command line: sched.rule=plateau,monitor=val/loss,better=less is the form of earlier versions; write "
            "sched.rule=plateau,metric=val/loss,better=lower");
}

// A key that keeps its name, with values of another form.
TEST(FormerSettingsTest, EpochsOfUnfreezing) {
  const auto unfreeze = [](const std::string& text) {
    return stored("[finetune]\nunfreeze = " + text + "\n").section("finetune").text("unfreeze");
  };
  EXPECT_EQ(unfreeze("layer4@2e"), "layer4@2epochs");
  EXPECT_EQ(unfreeze("layer4/fc@100, layer3@2e"), "layer4,fc@100,layer3@2epochs");
  EXPECT_EQ(unfreeze("layer4@100,stage@2epochs"), "layer4@100,stage@2epochs");
  EXPECT_EQ(refusal("finetune.unfreeze", "layer4@2e"),
            "command line: finetune.unfreeze=layer4@2e is the form of earlier versions; write "
            "finetune.unfreeze=layer4@2epochs");
  EXPECT_EQ(refusal("finetune.unfreeze", "layer4@2epochs"), "");
}

TEST(FormerSettingsTest, HooksThatFreeze) {
  const auto unfreeze = [](const std::string& hooks, const std::string& more = "") {
    return stored("[train]\n" + hooks + "[finetune]\nunfreeze = " + more + "\n").section("finetune").text("unfreeze");
  };
  EXPECT_EQ(unfreeze("hooks = freeze,names=hidden*/head.bias,until=3\n"), "hidden*,head.bias@3");
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

TEST(FormerSettingsTest, ClippingByText) {
  const auto values = [](const std::string& former) {
    const Config config = stored("[train]\nclip_grad = " + former + "\n");
    const Section& train = config.section("train");
    return std::vector<std::string>{train.values().at("clip_norm").texts[0], train.text("clip_norm_type"),
                                    train.values().at("clip_value").texts[0]};
  };
  EXPECT_EQ(values(""), (std::vector<std::string>{"0", "2", "0"}));
  EXPECT_EQ(values("norm:0.5"), (std::vector<std::string>{"0.5", "2", "0"}));
  EXPECT_EQ(values("norm:0.5:p=inf"), (std::vector<std::string>{"0.5", "inf", "0"}));
  EXPECT_EQ(values("value:0.5"), (std::vector<std::string>{"0", "2", "0.5"}));
  EXPECT_EQ(refusal("train.clip_grad", "norm:1.0"),
            "command line: train.clip_grad=norm:1.0 was replaced by train.clip_norm=1.0");
  EXPECT_EQ(refusal("train.clip_grad", "norm:1:p=1"),
            "command line: train.clip_grad=norm:1:p=1 was replaced by train.clip_norm=1 and train.clip_norm_type=1");
  EXPECT_EQ(refusal("train.clip_grad", "value:0.5"),
            "command line: train.clip_grad=value:0.5 was replaced by train.clip_value=0.5");
  EXPECT_EQ(refusal("train.clip_grad", "1"),
            "command line: train.clip_grad=1 was replaced by train.clip_norm; set train.clip_norm=1.0 or "
            "train.clip_value=0.5");
}

TEST(FormerSettingsTest, BucketsInBytes) {
  const Config config = stored("[ddp]\nbucket_bytes = 1048576, 26214400\nlast_bucket_bytes = 300\n");
  EXPECT_EQ(config.section("ddp").reals("bucket_mb"), (std::vector<double>{1, 25}));
  EXPECT_EQ(config.section("ddp").real("last_bucket_mb") * (1 << 20), 300);
  EXPECT_EQ(refusal("ddp.bucket_bytes", "524288"),
            "command line: ddp.bucket_bytes=524288 was replaced by ddp.bucket_mb=0.5");
  EXPECT_EQ(refusal("ddp.last_bucket_bytes", "0"),
            "command line: ddp.last_bucket_bytes=0 was replaced by ddp.last_bucket_mb=0");
  EXPECT_EQ(refusal("ddp.bucket_bytes", "many"),
            "command line: ddp.bucket_bytes=many was replaced by ddp.bucket_mb; its unit is MiB");
}

TEST(FormerSettingsTest, RenamedKeys) {
  const Config config = stored("[run]\ncompile = true\n[train]\nstep = amp\n");
  EXPECT_TRUE(config.section("run").boolean("cuda_graphs"));
  EXPECT_EQ(config.section("train").text("step_kind"), "amp");
  EXPECT_EQ(refusal("run.compile", "true"), "command line: key 'run.compile' was renamed to 'run.cuda_graphs'");
  EXPECT_EQ(refusal("train.step", "amp"), "command line: key 'train.step' was renamed to 'train.step_kind'");
}

// A run of an earlier version ends where it would have ended.
TEST(FormerSettingsTest, BothLimitsOfALengthAreKept) {
  const Config config = stored("[train]\nmax_steps = 100\nmax_epochs = 5\n");
  EXPECT_EQ(config.section("train").integer("max_epochs"), 5);
}

TEST(FormerSettingsTest, ListsWithSlashes) {
  const Config config = stored(
      "[sched]\nrule = multistep,milestones=30/60,gamma=0.1\n"
      "rule = composite,curves=(multistep,milestones=3/4 | cosine),lengths=0.1/0.9,scaling=fixed/rescaled\n"
      "[optim]\npart = critic,names=head/block*.norm,betas=0.5/0.9\npart = rest,names=rest\n"
      "paramwise = custom:embed,betas=0.5/0.75\n"
      "[ema]\nnames = generator/head.*\n[finetune]\nunfreeze = layer4/fc@100,layer3@200\n"
      "[distill]\nmodel = mlp,hidden=64/32\n"
      "[data]\ntransform = random_resized_crop,size=224,scale=0.08/1\ntransform = normalise,mean=0.5/0.4/0.3\n"
      "val_transform = normalise\n");
  using Texts = std::vector<std::string>;
  EXPECT_EQ(config.section("sched").texts("rule"),
            (Texts{"multistep,milestones=30,60,gamma=0.1",
                   "composite,curves=(multistep,milestones=3,4 | cosine),lengths=0.1,0.9,scaling=fixed,rescaled"}));
  EXPECT_EQ(config.section("optim").texts("part"),
            (Texts{"critic,names=head,block*.norm,betas=0.5,0.9", "rest,names=rest"}));
  EXPECT_EQ(config.section("optim").texts("paramwise"), Texts{"custom:embed,betas=0.5,0.75"});
  EXPECT_EQ(config.section("ema").text("names"), "generator,head.*");
  EXPECT_EQ(config.section("finetune").text("unfreeze"), "layer4,fc@100,layer3@200");
  EXPECT_EQ(config.section("distill").text("model"), "mlp,hidden=64,32");
  EXPECT_EQ(config.section("data").texts("transform"),
            (Texts{"random_resized_crop,size=224,scale=0.08,1", "normalize,mean=0.5,0.4,0.3"}));
  EXPECT_EQ(config.section("data").texts("val_transform"), Texts{"normalize"});
  EXPECT_EQ(refusal("sched.rule", "multistep,milestones=30/60"),
            "command line: sched.rule=multistep,milestones=30/60 is the form of earlier versions; write "
            "sched.rule=multistep,milestones=30,60");
  EXPECT_EQ(refusal("data.transform", "normalise"),
            "command line: data.transform=normalise is the form of earlier versions; write data.transform=normalize");
  EXPECT_EQ(refusal("ema.names", "a/b"),
            "command line: ema.names=a/b is the form of earlier versions; write ema.names=a,b");
}

// A gpt of earlier versions stored the keys of vit, too, and a vit those of gpt.
TEST(FormerSettingsTest, SizesOfGpt) {
  const auto sizes = [](const std::string& name, const std::string& vit) {
    const Config config =
        stored("[model]\nname = " + name + "\nlayers = 2\nheads = 6\nfeatures = 48\nembed_dim = " + vit +
               "\ndepth = " + vit + "\nnum_heads = " + vit + "\n");
    const Section& model = config.section("model");
    return std::vector<std::int64_t>{model.integer("depth"), model.integer("num_heads"), model.integer("embed_dim")};
  };
  EXPECT_EQ(sizes("gpt", "0"), (std::vector<std::int64_t>{2, 6, 48}));
  EXPECT_EQ(sizes("vit", "3"), (std::vector<std::int64_t>{3, 3, 3}));
  EXPECT_EQ(sizes("vit_b_16", "0"), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(stored("[distill]\nmodel = gpt,layers=2,features=64\n").section("distill").text("model"),
            "gpt,depth=2,embed_dim=64");
  EXPECT_EQ(refusal("model.layers", "2"), "command line: model.layers=2 was replaced by model.depth=2");
  EXPECT_EQ(refusal("model.heads", "2"), "command line: model.heads=2 was replaced by model.num_heads=2");
  EXPECT_EQ(refusal("model.features", "64"), "command line: model.features=64 was replaced by model.embed_dim=64");
}

TEST(FormerSettingsTest, KeysOfImages) {
  const Config config =
      stored("[data]\nunlabelled = true\nmax_image_bytes = 1572864\npreset = torchvision2\nrepeats = 0\n");
  const Section& data = config.section("data");
  EXPECT_TRUE(data.boolean("unlabeled"));
  EXPECT_EQ(data.real("max_image_mb"), 1.5);
  EXPECT_EQ(data.text("augmentation"), "torchvision2");
  EXPECT_EQ(data.integer("repeats"), 1);
  EXPECT_EQ(refusal("data.unlabelled", "true"), "command line: key 'data.unlabelled' was renamed to 'data.unlabeled'");
  EXPECT_EQ(refusal("data.max_image_bytes", "536870912"),
            "command line: data.max_image_bytes=536870912 was replaced by data.max_image_mb=512");
  EXPECT_EQ(refusal("data.preset", "deit"),
            "command line: data.preset=deit was replaced by data.augmentation=deit; it sets transforms and train.mix "
            "only: set loss.name, loss.label_smoothing and data.repeats as the recipe states, see docs/images.md");
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
