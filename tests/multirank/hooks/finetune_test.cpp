// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/finetune.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "engine/resume/run_state.hpp"
#include "hooked_run.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {
namespace finetune_test {

using Values = std::map<std::string, at::Tensor>;  // values by name

/// A small run with the hooks of section finetune.
struct FinetuneRun : SmallRun {
  FinetuneRun(const mpi::Communicator& world, const Settings& settings, const Registry& registry = builtin_registry())
      : SmallRun(world, settings, registry) {
    for (auto& hook : finetune_hooks(FinetuneSettings::from(sections.at("finetune")))) {
      trainer.add_hook(std::move(hook));
    }
  }

  /// All parameters and buffers, the frozen ones among them.
  Values values() {
    Values values;
    model.wrapper->store().read_whole([&] {
      for (const auto& item : model.wrapper->model().named_parameters()) {
        values[item.key()] = item.value().detach().clone();
      }
    });
    for (const auto& item : model.wrapper->model().named_buffers()) values[item.key()] = item.value().clone();
    return values;
  }
};

class FinetuneTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

const Settings kDeep = with(kTwelveSteps, {{"model.hidden", "16,8"}, {"optim.weight_decay", "0.1"}});

std::vector<Settings> layouts() {
  return {{},
          {{"ema.decay", "0.9"}},
          {{"train.micro_batch", "2"}},
          {{"model.recompute", "hidden*"}},
          {{"strategy.name", "sharded"}, {"strategy.stage", "1"}},
          {{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
          {{"strategy.name", "sharded"}, {"strategy.stage", "3"}},
          {{"train.lanes", "6"}}};
}

std::string title_of(const Settings& layout) {
  return layout.empty() ? "default" : layout.back().first + "=" + layout.back().second;
}

// The store has buckets and states only for what it contains, and a frozen parameter never gets a gradient.
TEST_F(FinetuneTest, FrozenParametersAreInNoBucketAndDoNotMove) {
  for (const Settings& layout : layouts()) {
    FinetuneRun run(world_, with(with(kDeep, {{"finetune.train", "head,hidden1.bias"}}), layout));
    std::vector<std::string> stored;
    const parallel::ParameterStore& store = run.model.wrapper->store();
    for (std::size_t i = 0; i < store.size(); ++i) stored.push_back(store.parameter(i).name);
    EXPECT_EQ(stored, (std::vector<std::string>{"hidden1.bias", "head.weight", "head.bias"})) << title_of(layout);
    const Values before = run.values();
    run.trainer.train();
    for (const auto& [name, value] : run.values()) {
      const bool is_trained = std::find(stored.begin(), stored.end(), name) != stored.end();
      EXPECT_NE(at::equal(value, before.at(name)), is_trained) << title_of(layout) << " " << name;
    }
    for (const auto& item : run.model.wrapper->model().named_parameters()) {
      if (item.value().requires_grad()) continue;
      EXPECT_FALSE(item.value().grad().defined()) << item.key();
    }
  }
}

TEST_F(FinetuneTest, AnInterruptedRunContinuesBitForBit) {
  for (const Settings& layout : layouts()) {
    const Settings settings =
        with(with(kDeep, {{"finetune.train", "head"}, {"finetune.unfreeze", "hidden1@5"}}), layout);
    FinetuneRun straight(world_, settings);
    straight.trainer.train();
    const Values expected = straight.values();
    for (const std::int64_t last : {3, 5, 7}) {
      FinetuneRun first(world_, settings);
      first.trainer.add_hook(Priority::low, callback_hook({.before_agreement = [last](RunView& view) {
                               if (view.progress.step + 1 == last) view.requests.end();
                             }}));
      first.trainer.train();
      FinetuneRun resumed(world_, settings);
      restore(resumed.trainer, capture(first.trainer, "", true));
      resumed.trainer.train();
      EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + last, straight.losses.end()))
          << title_of(layout);
      for (const auto& [name, value] : resumed.values()) {
        EXPECT_TRUE(at::equal(value, expected.at(name))) << title_of(layout) << " " << name;
      }
    }
  }
}

/// The first step, from 1, that changed each parameter.
std::map<std::string, std::int64_t> first_changes(FinetuneRun& run) {
  std::map<std::string, std::int64_t> first;
  Values before = run.values();
  run.trainer.add_hook(Priority::low, callback_hook({.after_step = [&](RunView& view, const StepReport&) {
                         Values now = run.values();
                         for (const auto& [name, value] : now) {
                           if (!at::equal(value, before.at(name))) first.emplace(name, view.progress.step);
                         }
                         before = std::move(now);
                       }}));
  run.trainer.train();
  return first;
}

// 100 samples in batches of 12: an epoch has 8 steps.
TEST_F(FinetuneTest, PartsJoinAtTheirStepOrEpoch) {
  FinetuneRun run(world_,
                  with(kDeep, {{"finetune.train", "head"}, {"finetune.unfreeze", "hidden1@5,hidden0.weight@1epochs"}}));
  const std::map<std::string, std::int64_t> expected = {
      {"hidden0.weight", 9}, {"hidden1.weight", 6}, {"hidden1.bias", 6}, {"head.weight", 1}, {"head.bias", 1}};
  EXPECT_EQ(first_changes(run), expected);
}

// AdamW has momentum and weight decay, either of which would move a parameter with a gradient of 0.
TEST_F(FinetuneTest, NothingMovesAParameterBeforeItsStep) {
  std::vector<Settings> all = layouts();
  all.push_back({{"ddp.shared_parameters", "false"}});
  all.push_back({{"train.clip_norm", "0.1"}});
  for (const Settings& layout : all) {
    FinetuneRun run(world_, with(with(kDeep, {{"finetune.unfreeze", "hidden*,head.bias@3"}}), layout));
    const std::map<std::string, std::int64_t> expected = {{"hidden0.weight", 4}, {"hidden0.bias", 4},
                                                          {"hidden1.weight", 4}, {"hidden1.bias", 4},
                                                          {"head.weight", 1},    {"head.bias", 4}};
    EXPECT_EQ(first_changes(run), expected) << title_of(layout);
    optim::Optimizer& optimizer = run.updates.first().optimizer();
    std::vector<std::int64_t> steps;
    for (std::size_t b = 0; b < run.model.wrapper->parameters().blocks().size(); ++b) {
      for (const std::int64_t count : optimizer.steps(b)) steps.push_back(count);
    }
    EXPECT_EQ(std::count(steps.begin(), steps.end(), 12), 1) << title_of(layout);
    EXPECT_EQ(std::count(steps.begin(), steps.end(), 9), 5) << title_of(layout);
  }
}

TEST_F(FinetuneTest, WhatIsNotTrainedIsNeverUpdated) {
  FinetuneRun run(world_, with(kTwelveSteps, {{"finetune.train", "head"}}));
  const std::map<std::string, std::int64_t> expected = {{"head.weight", 1}, {"head.bias", 1}};
  EXPECT_EQ(first_changes(run), expected);
}

TEST_F(FinetuneTest, GradientsThatAreNotUsedAreInNoNorm) {
  const Settings clip = with(kTwelveSteps, {{"train.clip_norm", "1"}});
  FinetuneRun frozen(world_, with(clip, {{"finetune.unfreeze", "hidden0@1"}}));
  FinetuneRun whole(world_, clip);
  frozen.trainer.train();
  whole.trainer.train();
  EXPECT_LT(frozen.norms.front(), whole.norms.front());
  EXPECT_EQ(frozen.losses.front(), whole.losses.front());
}

TEST_F(FinetuneTest, AParameterCanWaitTwice) {
  FinetuneRun run(world_, with(kTwelveSteps, {{"finetune.unfreeze", "hidden0@2,hidden0.weight@5"}}));
  const std::map<std::string, std::int64_t> expected = {
      {"hidden0.weight", 6}, {"hidden0.bias", 3}, {"head.weight", 1}, {"head.bias", 1}};
  EXPECT_EQ(first_changes(run), expected);
}

// training-loop.md 6.11, with an evaluation in between, which leaves the model in training mode.
TEST_F(FinetuneTest, BlocksThatJoinLaterAreInEvaluationModeMeanwhile) {
  FinetuneRun run(world_, with(kTwelveSteps, {{"finetune.unfreeze", "hidden0@3"}}));
  std::vector<bool> hidden;
  std::vector<bool> head;
  run.trainer.add_hook(Priority::low, callback_hook({.before_step =
                                                         [&](RunView& view) {
                                                           const auto children = view.wrapper.model().named_children();
                                                           hidden.push_back(children["hidden0"]->is_training());
                                                           head.push_back(children["head"]->is_training());
                                                         },
                                                     .after_step =
                                                         [&](RunView& view, const StepReport&) {
                                                           metrics::Meters none;
                                                           evaluate(view.world, view.wrapper, *view.data.splits().val,
                                                                    {50}, none);
                                                         }}));
  run.trainer.train();
  std::vector<bool> expected(12, true);
  EXPECT_EQ(head, expected);
  for (std::size_t i = 0; i < 3; ++i) expected[i] = false;
  EXPECT_EQ(hidden, expected);
}

TEST_F(FinetuneTest, FrozenBatchNormKeepsItsStatistics) {
  const Registry registry = registry_with_normed();
  for (const bool freezes : {true, false}) {
    FinetuneRun run(world_,
                    with(kTwelveSteps, {{"model.name", "normed"},
                                        {"finetune.train", "head"},
                                        {"finetune.freeze_bn", freezes ? "true" : "false"}}),
                    registry);
    const Values before = run.values();
    run.trainer.train();
    for (const auto& [name, value] : run.values()) {
      const bool is_statistic = name.find("running") != std::string::npos;
      if (!is_statistic) continue;
      EXPECT_EQ(at::equal(value, before.at(name)), freezes) << name;
    }
  }
}

TEST_F(FinetuneTest, NormsAndBiasesAreKnownByTheirLayers) {
  const Registry registry = registry_with_normed();
  FinetuneRun norms(world_, with(kTwelveSteps, {{"model.name", "normed"}, {"finetune.train", "norms"}}), registry);
  EXPECT_EQ(norms.model.wrapper->store().size(), 2U);
  FinetuneRun biases(world_, with(kTwelveSteps, {{"model.name", "normed"}, {"finetune.train", "biases"}}), registry);
  EXPECT_EQ(biases.model.wrapper->store().parameter(1).name, "head.bias");
}

TEST_F(FinetuneTest, NamesWithoutParametersAreRefused) {
  const auto error_of = [&](const Settings& settings) {
    return agreed_error_of<ConfigError>(world_, [&] { FinetuneRun run(world_, with(kDeep, settings)); });
  };
  EXPECT_EQ(error_of({{"finetune.train", "hed"}}),
            "finetune.train (test): no parameter is named 'hed' or belongs to such a block; use all, head, norms, "
            "biases, or names such as layer4");
  EXPECT_EQ(error_of({{"finetune.train", "norms"}}),
            "finetune.train (test): no parameter is named 'norms' or belongs to such a block; use all, head, norms, "
            "biases, or names such as layer4");
  EXPECT_EQ(error_of({{"finetune.unfreeze", "hidden0@0"}}),
            "finetune.unfreeze (test): 'hidden0@0': the number must be at least 1");
  EXPECT_EQ(error_of({{"finetune.unfreeze", "hidden0"}}),
            "finetune.unfreeze (test): 'hidden0' is not of the form NAMES@500 or NAMES@2epochs");
  EXPECT_EQ(error_of({{"finetune.unfreeze", "hidden0@10min"}}),
            "finetune.unfreeze (test): 'hidden0@10min': '10min' is neither a step, such as 100, nor an epoch, such as "
            "2epochs");
}

TEST_F(FinetuneTest, WhatCannotJoinLaterIsRefused) {
  const auto error_of = [&](const std::string& unfreeze, const Settings& more = {}) {
    return agreed_error_of<ConfigError>(world_, [&] {
      FinetuneRun run(world_, with(with(kTwelveSteps, {{"finetune.unfreeze", unfreeze}}), more));
      run.trainer.train();
    });
  };
  for (const std::string name : {"hiden", "hidden"}) {
    EXPECT_EQ(error_of("hidden0," + name + "@3"),
              "finetune.unfreeze (test): no parameter is named '" + name +
                  "' or belongs to such a block; use all, head, norms, biases, or names such as layer4");
  }
  EXPECT_EQ(error_of("*@3"), "finetune.unfreeze: no parameter is left to update");
  EXPECT_EQ(error_of("hidden0@3", {{"optim.name", "lbfgs"}}),
            "finetune.unfreeze: lbfgs updates all parameters together and cannot be combined with parameters that join "
            "later");
}

}  // namespace finetune_test
}  // namespace lockstep::engine
