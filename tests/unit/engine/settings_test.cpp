// SPDX-License-Identifier: BSD-3-Clause
// Settings are what their keys say: the same defaults, and errors that name the key.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "batch/libtorch_versions.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/nonfinite.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/saving_settings.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/strategy.hpp"

namespace lockstep::engine {
namespace settings_test {

Section defaults(const std::string& section, const KeySpecs& keys) { return Section::with_defaults(section, keys); }

/// The text that is said about a value of a key.
template <class Read>
std::string refusal(Section section, const std::string& key, const std::string& value, const Read& read) {
  try {
    section.set(key, value, "here");
    read(section);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

template <class Settings>
void expect_defaults(const std::string& section) {
  EXPECT_EQ(Settings::from(defaults(section, Settings::keys())), Settings()) << section;
}

TEST(SettingsTest, DefaultsAreThoseOfTheKeys) {
  expect_defaults<RunSettings>("run");
  expect_defaults<BatchSettings>("train");
  expect_defaults<RunBounds>("train");
  expect_defaults<NonfiniteSettings>("train");
  expect_defaults<LogSettings>("log");
  expect_defaults<SavingSettings>("ckpt");
  expect_defaults<StrategySettings>("strategy");
  const Section eval = defaults("eval", EvalSettings::keys(metrics::builtin_meters()));
  EXPECT_EQ(EvalSettings::from(eval), EvalSettings());
  const Precision precision = Precision::from(defaults("train", Precision::keys()));
  EXPECT_EQ(precision.name, Precision().name);
  EXPECT_EQ(precision.parameters, Precision().parameters);
  EXPECT_FALSE(precision.autocast || precision.scaler);
}

/// Each key of these with a value that it does not take.
template <class Read>
void expect_cited(const std::string& section, const KeySpecs& keys, const Read& read) {
  for (const KeySpec& key : keys) {
    if (key.type == KeyType::text || key.type == KeyType::texts) continue;
    const std::string name = key.name.substr(section.size() + 1);
    const std::string words = refusal(defaults(section, keys), name, "nonsense", read);
    EXPECT_TRUE(words.starts_with("here: " + key.name + ": ")) << words;
  }
}

TEST(SettingsTest, WhatAKeyDoesNotTakeIsCited) {
  expect_cited("run", RunSettings::keys(), RunSettings::from);
  expect_cited("train", BatchSettings::keys(), BatchSettings::from);
  expect_cited("train", RunBounds::keys(), RunBounds::from);
  expect_cited("train", ClipSettings::keys(), ClipSettings::from);
  expect_cited("train", Precision::keys(), Precision::from);
  expect_cited("train", NonfiniteSettings::keys(), NonfiniteSettings::from);
  expect_cited("eval", EvalSettings::keys(metrics::builtin_meters()), EvalSettings::from);
  expect_cited("log", LogSettings::keys(), LogSettings::from);
  expect_cited("ckpt", SavingSettings::keys(), SavingSettings::from);
  expect_cited("strategy", StrategySettings::keys(), StrategySettings::from);
}

TEST(SettingsTest, WhatFitsAKeyButNotItsUseIsCited) {
  const Section train = defaults("train", Precision::keys());
  EXPECT_TRUE(refusal(train, "growth_factor", "3", Precision::from).starts_with("train.growth_factor (here) requires"));
  EXPECT_NE(refusal(defaults("train", RunBounds::keys()), "max_epochs", "0", RunBounds::from)
                .find("train.max_steps and train.max_epochs are both 0"),
            std::string::npos);
  Section compiled = defaults("run", RunSettings::keys());
  compiled.set("cuda_graphs", "true", "here");
  EXPECT_TRUE(RunSettings::from(compiled).uses_cuda_graphs);
  Section best = defaults("ckpt", SavingSettings::keys());
  best.set("metric", "recall", "here");
  EXPECT_EQ(SavingSettings::from(best).best.metric.cite, "ckpt.metric (here)");
}

TEST(SettingsTest, TheIntervalOfCopiesIsANumberOrAutomatic) {
  Section ckpt = defaults("ckpt", SavingSettings::keys());
  ckpt.set("memory_every", "auto", "here");
  EXPECT_EQ(SavingSettings::from(ckpt).memory_every, SavingSettings::kAutomatic);
  ckpt.set("memory_every", "50", "here");
  EXPECT_EQ(SavingSettings::from(ckpt).memory_every, 50);
  for (const std::string value : {"-1", "often", "1.5", "1e99"}) {
    EXPECT_TRUE(refusal(ckpt, "memory_every", value, SavingSettings::from)
                    .starts_with("ckpt.memory_every (here): '" + value + "' is neither auto nor"))
        << value;
  }
}

TEST(SettingsTest, ClippingIsByNormOrByValue) {
  const optim::Clip off = ClipSettings::from(defaults("train", ClipSettings::keys())).clip;
  EXPECT_FALSE(off.is_on() || off.is_by_group);
  EXPECT_EQ(off.norm_type, 2);
  Section train = defaults("train", ClipSettings::keys());
  train.set("clip_norm", "1.5", "a.ini:3");
  train.set("clip_norm_type", "inf", "a.ini:4");
  train.set("clip_scope", "group", "a.ini:5");
  const ClipSettings by_norm = ClipSettings::from(train);
  EXPECT_EQ(by_norm.clip.max_norm, 1.5);
  EXPECT_EQ(by_norm.clip.norm_type, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(by_norm.clip.is_by_group && by_norm.clip.is_on());
  EXPECT_EQ(by_norm.cite, "train.clip_norm (a.ini:3)");
  EXPECT_EQ(refusal(train, "clip_value", "0.5", ClipSettings::from),
            "train.clip_value (here): train.clip_norm is set, too; set one of them to 0");
  train.set("clip_norm", "0", "there");
  train.set("clip_value", "0.5", "there");
  EXPECT_EQ(ClipSettings::from(train).clip.max_value, 0.5);
  EXPECT_EQ(ClipSettings::from(train).cite, "train.clip_value (there)");
  for (const char* const bad : {"0", "-1", "nan", "two", ""}) {
    EXPECT_EQ(refusal(train, "clip_norm_type", bad, ClipSettings::from),
              "train.clip_norm_type (here): '" + std::string(bad) + "' is neither a number above 0 nor inf");
  }
  EXPECT_EQ(refusal(train, "clip_norm", "-1", ClipSettings::from), "here: train.clip_norm: '-1' is not a number >= 0");
}

// The limit by epochs is that of a run which has no other.
TEST(SettingsTest, StepsReplaceTheDefaultNumberOfEpochs) {
  Section train = defaults("train", RunBounds::keys());
  EXPECT_EQ(RunBounds::from(train), (RunBounds{.max_steps = 0, .max_epochs = 5}));
  train.set("max_steps", "100", "here");
  EXPECT_EQ(RunBounds::from(train), (RunBounds{.max_steps = 100, .max_epochs = 0}));
  EXPECT_EQ(train.effective("max_epochs").texts, std::vector<std::string>{"0"});
  EXPECT_EQ(train.effective("max_epochs").origin, "default of train.max_steps=100");
  train.set("max_epochs", "2", "here");
  EXPECT_EQ(RunBounds::from(train), (RunBounds{.max_steps = 100, .max_epochs = 2}));
  EXPECT_EQ(RunBounds::from(train).total_steps({.steps_per_epoch = 30}), 60);
}

std::string in_tf32(const std::string& tf32, const std::string& precision, c10::DeviceType device) {
  return products_in_tf32({tf32, "run.tf32 (here)"}, {precision, "train.precision (there)"}, device);
}

TEST(Tf32Test, TheProductsDependOnDeviceAndPrecision) {
  for (const char* const tf32 : {"convolutions", "all", "none"}) {
    for (const char* const precision : {"fp32", "bf16", "fp16"}) {
      EXPECT_EQ(in_tf32(tf32, precision, c10::kCUDA), tf32);
      EXPECT_EQ(in_tf32(tf32, precision, c10::kCPU), "none");
    }
    EXPECT_EQ(in_tf32(tf32, "fp64", c10::kCUDA), "none");
  }
  EXPECT_EQ(in_tf32("convolutions", "tf32", c10::kCUDA), "all");
  EXPECT_EQ(in_tf32("convolutions", "tf32", c10::kCPU), "none");
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    try {
      in_tf32("none", "tf32", device);
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(),
                   "run.tf32 (here): none contradicts train.precision (there), which is tf32; use "
                   "train.precision=fp32");
    }
  }
}

TEST(Tf32Test, LibTorchKnowsItForEachOperation) {
  struct Case {
    const char* tf32;
    const char* of_convolutions;
    const char* of_matrices;
  };
  for (const auto& [tf32, of_convolutions, of_matrices] :
       {Case{"all", "tf32", "tf32"}, Case{"none", "ieee", "ieee"}, Case{"convolutions", "tf32", "ieee"}}) {
    set_float32_products(tf32);
    EXPECT_EQ(cuda_float32_precision("conv"), of_convolutions) << tf32;
    EXPECT_EQ(cuda_float32_precision("rnn"), of_convolutions) << tf32;
    EXPECT_EQ(cuda_float32_precision("matmul"), of_matrices) << tf32;
  }
}

}  // namespace settings_test
}  // namespace lockstep::engine
