// SPDX-License-Identifier: BSD-3-Clause
// What gradients leave behind on their way between ranks, and what hooks have learned, survives a restart.
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>

#include "engine/state/run_state.hpp"
#include "parallel/reducers/bucket_plan.hpp"
#include "parallel/reducers/reducer.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"

namespace lockstep::engine {
namespace comm_state_test {

using checkpoints::Archive;

// One bucket for each layer.
const Settings kBase = with(
    kTwelveSteps,
    {{"model.hidden", "16,8"}, {"train.max_steps", "10"}, {"ddp.bucket_bytes", "300"}, {"ddp.last_bucket_bytes", "0"}});
const Settings kPowerSgd = {{"ddp.comm_hook", "powersgd"}, {"ddp.powersgd_start_step", "3"}};

/// Keeps the state after every step.
class KeepingHook : public Hook {
 public:
  KeepingHook(Trainer& trainer, std::vector<Archive>& states) : trainer_(&trainer), states_(&states) {}
  void after_step(RunView&, const StepReport&) override {
    const Archive live = capture(*trainer_, "", true);
    states_->push_back(live.with_bytes([](const checkpoints::Array& array) {
      const auto kept = std::make_shared<std::vector<std::byte>>(array.bytes.begin(), array.bytes.end());
      return checkpoints::Array{.dtype = array.dtype, .shape = array.shape, .bytes = *kept, .owner = kept};
    }));
  }

 private:
  Trainer* trainer_;
  std::vector<Archive>* states_;
};

class CommStateTest : public ::testing::Test {
 protected:
  /// A run without a stop, with its state after every step.
  struct Straight {
    std::vector<double> losses;
    std::vector<Archive> states;
  };

  Straight train(const Settings& settings) {
    Straight straight;
    SmallRun run(world_, with(kBase, settings));
    run.trainer.add_hook(Priority::very_low, std::make_unique<KeepingHook>(run.trainer, straight.states));
    run.trainer.train();
    straight.losses = run.losses;
    return straight;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
};

// A program's own row, with a key of its own: averages, multiplied by a factor.
TEST_F(CommStateTest, AProgramAddsCommunicationHooks) {
  Registry registry;
  registry.comm_hooks.push_back({.name = "scaled",
                                 .help = "averages times ddp.factor",
                                 .keys = {keys::real("ddp.factor", "1", "scaled: factor on the averages")},
                                 .make = [](const Section& ddp, mpi::Collectives& collectives) {
                                   parallel::CommHook average = parallel::all_reduce_hook(collectives);
                                   return parallel::ChosenHook{.hook = [average, factor = ddp.real("factor")](
                                                                           const parallel::GradBucket& bucket) {
                                     return
                                         [completion = average(bucket), factor] { return completion().mul_(factor); };
                                   }};
                                 }});
  const auto losses = [&](const Settings& settings) {
    SmallRun run(world_, with(kBase, settings), registry);
    run.trainer.train();
    return run.losses;
  };
  const Settings sgd = {{"optim.name", "sgd"}, {"optim.lr", "0.5"}};
  const Settings half = {{"optim.name", "sgd"}, {"optim.lr", "0.25"}};
  EXPECT_EQ(losses(with(sgd, {{"ddp.comm_hook", "scaled"}})), losses(sgd));
  if (world_.size() > 1) {
    EXPECT_EQ(losses(with(sgd, {{"ddp.comm_hook", "scaled"}, {"ddp.factor", "0.5"}})), losses(half));
  }
}

TEST_F(CommStateTest, PowerSgdContinuesBitForBit) {
  for (const char* const is_batched : {"false", "true"}) {
    const Settings settings = with(kPowerSgd, {{"ddp.powersgd_batched", is_batched}});
    const Straight straight = train(settings);
    for (const std::size_t step : {1, 2, 3, 4, 7}) {
      SmallRun resumed(world_, with(kBase, settings));
      restore(resumed.trainer, straight.states[step - 1]);
      EXPECT_EQ(reproducibility_of(resumed.trainer, straight.states[step - 1], {}).text(), "bitwise");
      resumed.trainer.train();
      EXPECT_EQ(resumed.losses,
                std::vector<double>(straight.losses.begin() + static_cast<std::ptrdiff_t>(step), straight.losses.end()))
          << is_batched << " from step " << step;
      EXPECT_EQ(testing::differences(straight.states.back(), capture(resumed.trainer, "", true)), "")
          << is_batched << " from step " << step;
    }
  }
}

TEST_F(CommStateTest, EachRankGetsItsOwnErrorBack) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank sends nothing";
  const Straight straight = train(kPowerSgd);
  const Archive& last = straight.states.back();
  const std::string first_error = "/comm/hook/ranks/" + last.arrays_in("/comm/hook/ranks").at(0);
  const checkpoints::Array& errors = last.array(first_error);
  EXPECT_EQ(errors.shape.front(), world_.size());
  const auto of_rank = [&](int rank) {
    return errors.bytes.subspan(
        static_cast<std::size_t>(rank) * errors.bytes.size() / static_cast<std::size_t>(world_.size()),
        errors.bytes.size() / static_cast<std::size_t>(world_.size()));
  };
  EXPECT_FALSE(std::ranges::equal(of_rank(0), of_rank(1)));
  SmallRun resumed(world_, with(kBase, kPowerSgd));
  restore(resumed.trainer, last);
  const parallel::HookState state = resumed.strategy.model().hook_memory()->state();
  EXPECT_EQ(state.integers.at("step"), 10);
  const at::Tensor mine = state.tensors.begin()->second.contiguous();
  const std::span<const std::byte> live(static_cast<const std::byte*>(mine.const_data_ptr()), mine.nbytes());
  EXPECT_TRUE(std::ranges::equal(live, of_rank(world_.rank())));
}

TEST_F(CommStateTest, AnotherNumberOfRanksLosesTheirErrorsOnly) {
  Archive elsewhere = train(kPowerSgd).states.back();
  elsewhere.set("/", "world_size", std::int64_t{7});
  SmallRun resumed(world_, with(kBase, kPowerSgd));
  restore(resumed.trainer, elsewhere);
  const parallel::HookState state = resumed.strategy.model().hook_memory()->state();
  EXPECT_TRUE(state.tensors.empty());
  EXPECT_EQ(state.common.size(), elsewhere.arrays_in("/comm/hook/common").size());
  EXPECT_EQ(state.integers.at("step"), world_.size() == 1 ? 0 : 10);
  EXPECT_EQ(reproducibility_of(resumed.trainer, elsewhere, {}).level, Reproducibility::Level::order);
}

TEST_F(CommStateTest, AnotherHookStartsAgain) {
  const Archive plain = train({}).states.back();
  SmallRun resumed(world_, with(kBase, kPowerSgd));
  restore(resumed.trainer, plain);
  EXPECT_EQ(resumed.strategy.model().hook_memory()->state().integers.at("step"), 0);
  EXPECT_EQ(reproducibility_of(resumed.trainer, plain, {}).text(),
            world_.size() == 1 ? "bitwise" : "statistical, because ddp.comm_hook is powersgd and was none");
}

TEST_F(CommStateTest, TheFirstStepHasTheBucketsOfTheRunWithoutAStop) {
  const Straight straight = train({});
  SmallRun learner(world_, kBase);
  learner.trainer.train();
  const parallel::BucketLayout learned = learner.strategy.model().reducer().learned_layout();
  EXPECT_EQ(learned.size() > 2, world_.size() > 1);
  for (const Archive& state : {straight.states.front(), straight.states.back()}) {
    EXPECT_EQ(state.has("/comm/buckets/counts"), world_.size() > 1);
    SmallRun resumed(world_, kBase);
    restore(resumed.trainer, state);
    EXPECT_EQ(resumed.strategy.model().reducer().report().is_rebuilt, world_.size() > 1);
    EXPECT_EQ(resumed.strategy.model().reducer().learned_layout(), learned);
    EXPECT_EQ(parallel::layout_of(resumed.strategy.model().reducer().report().buckets), learned);
  }
}

// Sums are in rank order, whatever lies beside a gradient in its bucket.
TEST_F(CommStateTest, OtherBucketsChangeNoBitWithoutAHook) {
  const Straight straight = train({});
  const Settings larger = {{"ddp.bucket_bytes", "1000000"}};
  SmallRun resumed(world_, with(kBase, larger));
  restore(resumed.trainer, straight.states[4]);
  EXPECT_FALSE(resumed.strategy.model().reducer().report().is_rebuilt);
  EXPECT_EQ(reproducibility_of(resumed.trainer, straight.states[4], {}).text(), "bitwise");
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 5, straight.losses.end()));

  if (world_.size() == 1) return;
  const Archive compressed = train(kPowerSgd).states.back();
  SmallRun other(world_, with(with(kBase, kPowerSgd), larger));
  restore(other.trainer, compressed);
  EXPECT_EQ(reproducibility_of(other.trainer, compressed, {}).text(),
            "order, because it was written with different values of ddp.bucket_bytes or ddp.last_bucket_bytes");
}

/// Counts the steps of all starts of a run.
class CountingHook : public Hook {
 public:
  explicit CountingHook(std::int64_t& count) : count_(&count) {}
  void after_step(RunView&, const StepReport&) override { ++*count_; }
  std::string state_name() const override { return "steps/all"; }
  void save_state(Archive& archive, const std::string& group) const override { archive.set(group, "count", *count_); }
  void load_state(const Archive& archive, const std::string& group) override {
    *count_ = archive.integer(group, "count");
  }

 private:
  std::int64_t* count_;
};

TEST_F(CommStateTest, AHookOfOnesOwnContinuesCounting) {
  std::int64_t first = 0;
  SmallRun run(world_, kBase);
  run.trainer.add_hook(Priority::normal, std::make_unique<CountingHook>(first));
  EXPECT_THROW(run.trainer.add_hook(Priority::low, std::make_unique<CountingHook>(first)), std::logic_error);
  run.trainer.train();
  const Archive archive = capture(run.trainer, "", true);
  std::int64_t second = 0;
  SmallRun resumed(world_, with(kBase, {{"train.max_steps", "13"}}));
  resumed.trainer.add_hook(Priority::normal, std::make_unique<CountingHook>(second));
  restore(resumed.trainer, archive);
  EXPECT_EQ(second, 10);
  resumed.trainer.train();
  EXPECT_EQ(second, 13);
}

}  // namespace comm_state_test
}  // namespace lockstep::engine
