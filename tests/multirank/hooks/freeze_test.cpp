// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/callback_hook.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "engine/state/run_state.hpp"
#include "hooked_run.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {
namespace freeze_test {

using Values = std::map<std::string, at::Tensor>;  // of parameters, by name

Values values_of(Strategy& strategy) {
  Values values;
  parallel::ParameterStore& store = strategy.model().store();
  store.read_whole([&] {
    for (std::size_t i = 0; i < store.size(); ++i) {
      values[store.parameter(i).name] = store.parameter(i).tensor.detach().clone();
    }
  });
  return values;
}

/// The first step, from 1, that changed each parameter.
std::map<std::string, std::int64_t> first_changes(HookedRun& run) {
  std::map<std::string, std::int64_t> first;
  Values before;
  run.trainer.add_hook(Priority::low,
                       callback_hook({.before_train = [&](RunView&) { before = values_of(run.strategy); },
                                      .after_step =
                                          [&](RunView& view, const StepReport&) {
                                            Values now = values_of(run.strategy);
                                            for (const auto& [name, value] : now) {
                                              if (at::equal(value, before.at(name))) continue;
                                              first.emplace(name, view.progress.step);
                                            }
                                            before = std::move(now);
                                          }}));
  run.trainer.train();
  return first;
}

class FreezeTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
};

// AdamW has momentum and weight decay, either of which would move a parameter whose gradient is 0.
TEST_F(FreezeTest, NothingMovesAParameterBeforeItsStep) {
  const std::vector<Settings> layouts = {{},
                                         {{"ddp.shared_parameters", "false"}},
                                         {{"train.clip_grad", "norm:0.1"}},
                                         {{"train.micro_batch", "2"}},
                                         {{"strategy.name", "sharded"}, {"strategy.stage", "1"}},
                                         {{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
                                         {{"strategy.name", "sharded"}, {"strategy.stage", "3"}},
                                         {{"train.lanes", "6"}}};
  for (const Settings& layout : layouts) {
    const std::string title = layout.empty() ? "default" : layout.back().first + "=" + layout.back().second;
    HookedRun run(world_, with_hook("freeze,names=hidden*/head.bias,until=3",
                                    with({{"optim.weight_decay", "0.1"}, {"model.hidden", "16,8"}}, layout)));
    const std::map<std::string, std::int64_t> expected = {{"hidden0.weight", 4}, {"hidden0.bias", 4},
                                                          {"hidden1.weight", 4}, {"hidden1.bias", 4},
                                                          {"head.weight", 1},    {"head.bias", 4}};
    EXPECT_EQ(first_changes(run), expected) << title;
    const optim::Optimizer& optimizer = run.strategy.optimizer().optimizer();
    std::vector<std::int64_t> steps;
    for (std::size_t b = 0; b < run.strategy.model().parameters().blocks().size(); ++b) {
      for (const std::int64_t count : const_cast<optim::Optimizer&>(optimizer).steps(b)) steps.push_back(count);
    }
    EXPECT_EQ(std::count(steps.begin(), steps.end(), 12), 1) << title;
    EXPECT_EQ(std::count(steps.begin(), steps.end(), 9), 5) << title;
  }
}

TEST_F(FreezeTest, UntilZeroIsForEver) {
  HookedRun run(world_, with_hook("freeze,names=hidden0"));
  const std::map<std::string, std::int64_t> expected = {{"head.weight", 1}, {"head.bias", 1}};
  EXPECT_EQ(first_changes(run), expected);
}

TEST_F(FreezeTest, GradientsThatAreNotUsedAreInNoNorm) {
  const Settings clip = {{"train.clip_grad", "norm:1"}};
  HookedRun frozen(world_, with_hook("freeze,names=hidden0,until=1", clip));
  SmallRun whole(world_, with(kTwelveSteps, clip));
  frozen.trainer.train();
  whole.trainer.train();
  EXPECT_LT(frozen.norms.front(), whole.norms.front());
  EXPECT_EQ(frozen.losses.front(), whole.losses.front());
}

TEST_F(FreezeTest, TwoHooksMayShareAParameter) {
  HookedRun run(world_, with(with_hook("freeze,names=hidden0,until=2"),
                             {{"train.hooks", "freeze,names=hidden0.weight,until=5"}}));
  const std::map<std::string, std::int64_t> expected = {
      {"hidden0.weight", 6}, {"hidden0.bias", 3}, {"head.weight", 1}, {"head.bias", 1}};
  EXPECT_EQ(first_changes(run), expected);
}

// training-loop.md 6.11, with an evaluation in between, which leaves the model in training mode.
TEST_F(FreezeTest, ItsBlocksAreInEvaluationModeMeanwhile) {
  HookedRun run(world_, with_hook("freeze,names=hidden0,until=3"));
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
                                                           evaluate(view.world, view.wrapper, *view.data.splits().val,
                                                                    {50});
                                                         }}));
  run.trainer.train();
  std::vector<bool> expected(12, true);
  EXPECT_EQ(head, expected);
  for (std::size_t i = 0; i < 3; ++i) expected[i] = false;
  EXPECT_EQ(hidden, expected);
}

TEST_F(FreezeTest, AnInterruptedRunContinuesBitForBit) {
  const Settings settings = with_hook("freeze,names=hidden0,until=5", {{"optim.weight_decay", "0.1"}});
  HookedRun straight(world_, settings);
  straight.trainer.train();
  for (const std::int64_t last : {3, 5, 7}) {
    HookedRun first(world_, settings);
    first.trainer.add_hook(Priority::low, callback_hook({.before_agreement = [last](RunView& view) {
                             if (view.progress.step + 1 == last) view.requests.end();
                           }}));
    first.trainer.train();
    HookedRun resumed(world_, settings);
    restore(resumed.trainer, capture(first.trainer, "", true));
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + last, straight.losses.end())) << last;
    const Values expected = values_of(straight.strategy);
    for (const auto& [name, value] : values_of(resumed.strategy)) EXPECT_TRUE(at::equal(value, expected.at(name)));
  }
}

TEST_F(FreezeTest, WhatItCannotFreezeIsSaid) {
  const auto error_of = [&](const std::string& hook, const Settings& more = {}) {
    return agreed_error_of<ConfigError>(world_, [&] {
      HookedRun run(world_, with_hook(hook, more));
      run.trainer.train();
    });
  };
  EXPECT_EQ(error_of("freeze,names=hidden0/hiden"),
            "train.hooks: freeze: no trained parameter is named 'hiden' or belongs to such a block");
  EXPECT_EQ(error_of("freeze,names=hidden"),
            "train.hooks: freeze: no trained parameter is named 'hidden' or belongs to such a block");
  EXPECT_EQ(error_of("freeze,names=*"), "train.hooks: freeze: no parameter is left to update");
  EXPECT_EQ(error_of("freeze,names=hidden0", {{"optim.name", "lbfgs"}}),
            "train.hooks: freeze: lbfgs updates all parameters together and cannot be combined with freeze");
}

}  // namespace freeze_test
}  // namespace lockstep::engine
