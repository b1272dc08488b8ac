// SPDX-License-Identifier: BSD-3-Clause
// Settings of earlier versions, in a configuration with the keys of the program.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <gtest/gtest.h>

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
  const auto every_epochs = [](const std::string& pattern) {
    return stored("[train]\nphases = " + pattern + "\n[eval]\nevery_epochs = 1\n").section("eval").text("every_epochs");
  };
  EXPECT_EQ(every_epochs("train:2,test"), "2");
  EXPECT_EQ(every_epochs("train,test"), "1");
  EXPECT_EQ(every_epochs("train:2,train,test"), "3");
  for (const char* const other :
       {"", "train:3", "train,test,train:3,test", "test", "train:x,test", "train:2,test,train"}) {
    EXPECT_EQ(every_epochs(other), "1") << other;
  }
  EXPECT_EQ(refusal("train.phases", "train:2,test"),
            "command line: train.phases=train:2,test was replaced by eval.every_epochs=2");
  EXPECT_EQ(refusal("train.phases", "train:3"),
            "command line: train.phases=train:3 was replaced by eval.every_epochs; list other epochs as intervals that "
            "change: 1,2:3,4:6 = epochs 1, 3 and 6");
}

TEST(FormerSettingsTest, HooksThatFreeze) {
  const auto unfreeze = [](const std::string& hooks, const std::string& more = "") {
    return stored("[train]\n" + hooks + "[finetune]\nunfreeze = " + more + "\n").section("finetune").text("unfreeze");
  };
  EXPECT_EQ(unfreeze("hooks = freeze,names=hidden*/head.bias,until=3\n"), "hidden*,head.bias@3");
  EXPECT_EQ(unfreeze("hooks = freeze,until=3,names=a,priority=low\nhooks = freeze,names=b,until=5\n", "c@2e"),
            "c@2e,a@3,b@5");
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
