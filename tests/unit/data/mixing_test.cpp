// SPDX-License-Identifier: BSD-3-Clause
#include "data/mixing.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/types.h>

#include <cmath>
#include <set>

#include "files.hpp"

namespace lockstep::data {
namespace mixing_test {

constexpr int kDraws = 100'000;
const Task kImages = {.sample_shape = {2, 4, 6}, .classes = 5};

Section train_section(const std::vector<std::string>& lines, const std::string& until = "1") {
  Section train = Section::with_defaults("train", MixSettings::keys());
  for (const std::string& line : lines) train.set("mix", line, "here");
  train.set("mix_until", until, "here");
  return train;
}

Mixing mixing_of(const std::vector<std::string>& lines, const Task& task = kImages, const std::string& until = "1",
                 double smoothing = 0) {
  return Mixing({.settings = MixSettings::from(train_section(lines, until)), .smoothing = smoothing, .seed = 3}, task,
                {});
}

TEST(MixingTest, LinesAreRules) {
  const MixSettings settings =
      MixSettings::from(train_section({"mixup", "cutmix,alpha=0.5,prob=0.25,scope=elem"}, "0.9"));
  const std::vector<MixRule> expected = {{.alpha = 0.2},
                                         {.is_cutmix = true, .alpha = 0.5, .probability = 0.25, .is_by_sample = true}};
  EXPECT_EQ(settings.rules.value, expected);
  EXPECT_EQ(settings.until, 0.9);
  EXPECT_TRUE(MixSettings::from(train_section({})).rules.value.empty());
}

TEST(MixingTest, WrongLinesAreRefused) {
  const auto refusal = [](const std::string& line) {
    return sentence_of<ConfigError>([&] { MixSettings::from(train_section({line})); });
  };
  EXPECT_EQ(refusal("mixu"),
            "train.mix (here): 'mixu' is unknown; choose one of: mixup, cutmix; did you mean 'mixup'?");
  EXPECT_NE(refusal("mixup,alpha=0").find("is not a number in (0, 1000000]"), std::string::npos)
      << refusal("mixup,alpha=0");
  EXPECT_NE(refusal("cutmix,mode=elem").find("'mode' is unknown"), std::string::npos) << refusal("cutmix,mode=elem");
}

TEST(MixingTest, WhatCannotBeMixedIsRefused) {
  const auto refusal = [](const std::string& line, const Task& task) {
    return sentence_of<ConfigError>([&] { mixing_of({line}, task); });
  };
  EXPECT_EQ(refusal("cutmix", {.sample_shape = {7}, .classes = 2}),
            "train.mix (here): cutmix needs samples of shape [channels, height, width]; use mixup");
  for (const Task& task : {Task{.sample_shape = {7}, .kind = TaskKind::regression},
                           Task{.sample_shape = {7}, .classes = 9, .is_text = true, .kind = TaskKind::language}}) {
    EXPECT_EQ(refusal("mixup", task),
              "train.mix (here): only samples with one class each can be mixed; remove train.mix");
  }
  EXPECT_EQ(sentence_of<ConfigError>([] {
              Mixing({.settings = MixSettings::from(train_section({"mixup"}))}, kImages, {.inputs = {"a", "b"}});
            }),
            "train.mix (here): only samples with one input and one target can be mixed; remove train.mix");
  EXPECT_NO_THROW(mixing_of({"mixup"}, {.sample_shape = {7}, .classes = 2}));
}

TEST(MixingTest, RulesOfStepsHaveTheirProbabilities) {
  const Mixing mixing = mixing_of({"mixup,prob=0.5", "cutmix"}, kImages, "0.75");
  std::int64_t mixups = 0;
  std::int64_t cuts = 0;
  for (std::int64_t step = 0; step < kDraws; ++step) {
    const MixRule* const rule = mixing.rule_of(step, kDraws);
    ASSERT_TRUE(step < 75'000 || rule == nullptr) << step;
    if (rule != nullptr) ++(rule->is_cutmix ? cuts : mixups);
  }
  const auto expect_near = [](std::int64_t count, double p) {  // five standard deviations
    EXPECT_NEAR(static_cast<double>(count), 75'000 * p, 5 * std::sqrt(75'000 * p * (1 - p)));
  };
  expect_near(mixups, 0.25);
  expect_near(cuts, 0.5);
}

TEST(MixingTest, ScopeDecidesWhetherSamplesShareADraw) {
  for (const bool is_by_sample : {false, true}) {
    const MixRule rule{.is_cutmix = true, .is_by_sample = is_by_sample};
    const Mixing mixing = mixing_of({"cutmix"});
    std::set<double> shares;
    for (std::int64_t position = 0; position < 64; ++position) shares.insert(mixing.draw(rule, 9, position).share);
    EXPECT_EQ(shares.size() == 1, !is_by_sample);
    EXPECT_EQ(mixing.draw(rule, 9, 5).share, mixing.draw(rule, 9, 5).share);
    EXPECT_NE(mixing.draw(rule, 8, 5).box, mixing.draw(rule, 10, 5).box);
  }
}

// A share with the distribution Beta(1, 1) is uniform: mean 1/2, variance 1/12.
TEST(MixingTest, DrawsHaveTheirDistributions) {
  const Mixing mixing = mixing_of({"mixup"});
  const MixRule rule{.probability = 0.5, .is_by_sample = true};
  int mixed = 0;
  double sum = 0;
  for (std::int64_t position = 0; position < kDraws; ++position) {
    const SampleMix mix = mixing.draw(rule, 1, position);
    if (mix.share == 1) continue;
    ++mixed;
    sum += mix.share;
  }
  EXPECT_NEAR(mixed, kDraws / 2, 5 * std::sqrt(kDraws / 4.0));
  EXPECT_NEAR(sum / mixed, 0.5, 5 * std::sqrt(1 / 12.0 / mixed));

  // The share is 0 or 1 with alpha = 1e-9; with 0 the box has at least one pixel.
  int inside = 0;
  const Mixing cutting = mixing_of({"cutmix"}, {.sample_shape = {1, 2, 2}, .classes = 5});
  for (std::int64_t step = 0; step < kDraws; ++step) {
    if (cutting.draw({.is_cutmix = true, .alpha = 1e-9}, step, 0).share < 1) ++inside;
  }
  EXPECT_NEAR(inside, kDraws / 2, 5 * std::sqrt(kDraws / 4.0));
}

/// Samples 0, 1, ... of which all values are 10^i, with the classes 0, 1, ...
batch::Batch powers(std::int64_t count, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> sizes = shape;
  sizes.insert(sizes.begin(), count);
  const at::Tensor data = at::empty(sizes);
  for (std::int64_t i = 0; i < count; ++i) data[i].fill_(std::pow(10, i));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(i);
  batch::Batch batch(data, at::tensor(labels));
  std::vector<batch::Draw> draws;
  for (std::int64_t i = 0; i < count; ++i) draws.push_back({.index = 40 + i});
  batch.set_draws(std::move(draws));
  return batch;
}

TEST(MixingTest, EachSampleIsMixedWithTheOneBeforeIt) {
  const Mixing mixing = mixing_of({"mixup,alpha=1"});
  const MixRule rule{.alpha = 1, .is_by_sample = true};
  const batch::Batch mixed = mixing.mixed(powers(4, {2, 3}), rule, 7, 5);
  ASSERT_EQ(mixed.size(), 3);
  EXPECT_EQ(mixed.draws().front().index, 41);
  for (std::int64_t i = 0; i < 3; ++i) {
    const double share = mixing.draw(rule, 7, 5 + i).share;
    const auto own = static_cast<float>(std::pow(10, i + 1));
    const auto partner = static_cast<float>(std::pow(10, i));
    const float expected = static_cast<float>(share) * own + static_cast<float>(1 - share) * partner;
    EXPECT_TRUE(mixed.input()[i].sub(expected).abs().max().item<float>() <= 1e-6 * own) << i;
    EXPECT_EQ(mixed.target()[i][i + 1].item<float>(), static_cast<float>(share));
    EXPECT_EQ(mixed.target()[i][i].item<float>(), static_cast<float>(1 - share));
    EXPECT_NEAR(mixed.target()[i].sum().item<double>(), 1, 1e-6);
    EXPECT_EQ(mixed.tensor(kMajorLabel)[i].item<std::int64_t>(), share >= 0.5 ? i + 1 : i);
  }
}

TEST(MixingTest, CutmixReplacesTheBoxInAnyLayout) {
  const Mixing mixing = mixing_of({"cutmix"}, kImages, "1", 0.5);
  const MixRule rule{.is_cutmix = true, .is_by_sample = true};
  for (std::int64_t step = 0; step < 20; ++step) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      batch::Batch given = powers(3, {2, 4, 6});
      given.change("data", [format](at::Tensor& data) { data = data.contiguous(format); });
      const batch::Batch mixed = mixing.mixed(std::move(given), rule, step, 0);
      EXPECT_TRUE(mixed.input().is_contiguous(format));
      for (std::int64_t i = 0; i < 2; ++i) {
        const SampleMix mix = mixing.draw(rule, step, i);
        at::Tensor expected = at::empty({2, 4, 6}).fill_(std::pow(10, i + 1));
        expected.narrow(1, mix.box.top, mix.box.height).narrow(2, mix.box.left, mix.box.width).fill_(std::pow(10, i));
        EXPECT_TRUE(mixed.input()[i].equal(expected)) << step << " " << i;
        EXPECT_NEAR(mixed.target()[i][i].item<double>(), 0.1 + 0.5 * (1 - mix.share), 1e-6);
      }
    }
  }
}

// Memory that something else refers to keeps its values.
TEST(MixingTest, SamplesOfADataSetAreNotOverwritten) {
  const Mixing mixing = mixing_of({"mixup"});
  const MixRule rule{.is_by_sample = true};
  batch::Batch given = powers(4, {2, 3});
  const at::Tensor held = given.input();
  const at::Tensor before = held.clone();
  const batch::Batch mixed = mixing.mixed(std::move(given), rule, 7, 0);
  EXPECT_TRUE(held.equal(before));
  EXPECT_TRUE(mixed.input().equal(mixing.mixed(powers(4, {2, 3}), rule, 7, 0).input()));

  std::vector<float> memory(24, 1);
  batch::Batch foreign(torch::from_blob(memory.data(), {4, 6}), at::tensor({0, 1, 2, 3}, at::kLong));
  memory[0] = 2;
  const batch::Batch of_foreign = mixing.mixed(std::move(foreign), rule, 7, 0);
  EXPECT_EQ(memory, [] {
    std::vector<float> same(24, 1);
    same[0] = 2;
    return same;
  }());
}

TEST(MixingTest, SamplesWithoutAClassAreRefused) {
  const Mixing mixing = mixing_of({"mixup"});
  const auto refusal = [&](batch::Batch batch) {
    return sentence_of<DataError>([&] { mixing.mixed(std::move(batch), {}, 0, 0); });
  };
  EXPECT_EQ(refusal(powers(6, {2})), "sample 45 has the class 5, but train.mix needs a class in [0, 5)");
  EXPECT_EQ(refusal({at::empty({2, 3}, at::kByte), at::tensor({0, 1}, at::kLong)}),
            "train.mix needs samples of type float32");
  EXPECT_EQ(refusal({at::empty({2, 3}), at::empty({2, 3})}), "train.mix needs one class per sample, of type int64");
}

}  // namespace mixing_test
}  // namespace lockstep::data
