// SPDX-License-Identifier: BSD-3-Clause
// What gradients leave behind on their way between ranks, and what hooks have learned, survives a restart.
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>

#include "engine/resume/run_state.hpp"
#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/reducer.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"

namespace lockstep::engine {
namespace comm_state_test {

using checkpoints::Archive;

// One bucket for each layer.
const Settings kBase = with(kTwelveSteps, {{"model.hidden", "16,8"},
                                           {"train.max_steps", "10"},
                                           {"ddp.bucket_mb", "0.000286102294921875"},
                                           {"ddp.last_bucket_mb", "0"}});
const Settings kPowerSgd = {{"ddp.comm_hook", "powersgd"}, {"ddp.powersgd_start_step", "3"}};

/// Keeps the state after every step.
class KeepingHook : public Hook {
 public:
  KeepingHook(Trainer& trainer, std::vector<Archive>& states) : trainer_(&trainer), states_(&states) {}
  void after_step(RunView&, const StepReport&) override {
    const Archive live = capture(*trainer_, "", true);
    states_->push_back(live.with_arrays([](const std::string&, const checkpoints::Array& array) {
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

const Settings kPostLocal = {
    {"strategy.post_local", "3:all"}, {"strategy.post_local_begin", "2"}, {"strategy.post_local_group", "1"}};

/// Keeps the state after step 5.
class CapturingHook : public Hook {
 public:
  CapturingHook(Trainer& trainer, Archive& state) : trainer_(&trainer), state_(&state) {}
  void between_steps(RunView&, const StepReport& report) override {
    if (report.progress.step != 5) return;
    *state_ = capture(*trainer_, "", true).with_arrays([](const std::string&, const checkpoints::Array& array) {
      const auto kept = std::make_shared<std::vector<std::byte>>(array.bytes.begin(), array.bytes.end());
      return checkpoints::Array{.dtype = array.dtype, .shape = array.shape, .bytes = *kept, .owner = kept};
    });
  }

 private:
  Trainer* trainer_;
  Archive* state_;
};

// At a checkpoint all ranks get the same weights and moments, so that a resumed run has what the run had.
TEST_F(CommStateTest, PostLocalSgdContinuesBitForBit) {
  Archive state;
  SmallRun straight(world_, with(kBase, kPostLocal));
  straight.trainer.add_hook(Priority::low, std::make_unique<CapturingHook>(straight.trainer, state));
  straight.trainer.train();
  EXPECT_EQ(state.text("/comm/hook", "type"), "post_local");
  SmallRun resumed(world_, with(kBase, kPostLocal));
  restore(resumed.trainer, state);
  EXPECT_EQ(reproducibility_of(resumed.trainer, state, {}).text(), "bitwise");
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 5, straight.losses.end()));
  EXPECT_EQ(testing::differences(capture(straight.trainer, "", true), capture(resumed.trainer, "", true)), "");
  if (world_.size() == 1) return;
  SmallRun ddp(world_, kBase);
  ddp.trainer.train();
  EXPECT_EQ(std::vector<double>(ddp.losses.begin(), ddp.losses.begin() + 3),
            std::vector<double>(straight.losses.begin(), straight.losses.begin() + 3));
  EXPECT_NE(ddp.losses, straight.losses);
}

// Averages of equal weights over 2 or 4 ranks are exact.
TEST_F(CommStateTest, PostLocalSgdOfOneGroupIsDdp) {
  if (world_.size() == 3) GTEST_SKIP() << "a mean of three equal numbers is rounded";
  SmallRun local(world_, with(kBase, with(kPostLocal, {{"strategy.post_local_group", std::to_string(world_.size())}})));
  local.trainer.train();
  SmallRun ddp(world_, kBase);
  ddp.trainer.train();
  EXPECT_EQ(local.losses, ddp.losses);
}

TEST_F(CommStateTest, PostLocalSgdRefusesWhatRequiresEqualWeights) {
  const auto refusal = [&](const Settings& settings) -> std::string {
    try {
      const SmallRun run(world_, with(kBase, with(kPostLocal, settings)));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const Settings excluded = {{"train.lanes", "12"},     {"train.precision", "fp16"}, {"strategy.name", "sharded"},
                             {"ddp.comm_hook", "bf16"}, {"ema.kind", "ema"},         {"optim.name", "lbfgs"}};
  for (const auto& setting : excluded) {
    EXPECT_NE(refusal({setting}).find("cannot be combined with"), std::string::npos) << setting.first;
  }
  const std::vector<std::pair<std::string, std::string>> malformed = {
      {"4", "is not PERIOD:RANKS"},        {"0:all", "is not PERIOD:RANKS"}, {"4:x", "neither a positive number"},
      {"4:2", "must be over all ranks"},   {"4:all,8:all", "must increase"}, {"8:2,4:all", "must increase"},
      {"4:64,8:all", "groups of 64 ranks"}};
  for (const auto& [value, part] : malformed) {
    EXPECT_NE(refusal({{"strategy.post_local", value}}).find(part), std::string::npos) << value;
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
  const parallel::HookState state = resumed.model.wrapper->hook_memory()->state();
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
  const parallel::HookState state = resumed.model.wrapper->hook_memory()->state();
  EXPECT_TRUE(state.tensors.empty());
  EXPECT_EQ(state.common.size(), elsewhere.arrays_in("/comm/hook/common").size());
  EXPECT_EQ(state.integers.at("step"), world_.size() == 1 ? 0 : 10);
  EXPECT_EQ(reproducibility_of(resumed.trainer, elsewhere, {}).level, Reproducibility::Degree::order);
}

TEST_F(CommStateTest, AnotherHookStartsAgain) {
  const Archive plain = train({}).states.back();
  SmallRun resumed(world_, with(kBase, kPowerSgd));
  restore(resumed.trainer, plain);
  EXPECT_EQ(resumed.model.wrapper->hook_memory()->state().integers.at("step"), 0);
  EXPECT_EQ(reproducibility_of(resumed.trainer, plain, {}).text(),
            world_.size() == 1 ? "bitwise" : "statistical, because ddp.comm_hook is powersgd and was none");
}

TEST_F(CommStateTest, TheFirstStepHasTheBucketsOfTheRunWithoutAStop) {
  const Straight straight = train({});
  SmallRun learner(world_, kBase);
  learner.trainer.train();
  const parallel::BucketLayout learned = learned_layout_of(learner.model.wrapper->reducer());
  EXPECT_EQ(learned.size() > 2, world_.size() > 1);
  for (const Archive& state : {straight.states.front(), straight.states.back()}) {
    EXPECT_EQ(state.has("/comm/buckets/counts"), world_.size() > 1);
    SmallRun resumed(world_, kBase);
    restore(resumed.trainer, state);
    EXPECT_EQ(report_of(resumed.model.wrapper->reducer()).is_rebuilt, world_.size() > 1);
    EXPECT_EQ(learned_layout_of(resumed.model.wrapper->reducer()), learned);
    EXPECT_EQ(parallel::layout_of(report_of(resumed.model.wrapper->reducer()).buckets), learned);
  }
}

// Sums are in rank order, whatever lies beside a gradient in its bucket.
TEST_F(CommStateTest, OtherBucketsChangeNoBitWithoutAHook) {
  const Straight straight = train({});
  const Settings larger = {{"ddp.bucket_mb", "0.95367431640625"}};
  SmallRun resumed(world_, with(kBase, larger));
  restore(resumed.trainer, straight.states[4]);
  EXPECT_FALSE(report_of(resumed.model.wrapper->reducer()).is_rebuilt);
  EXPECT_EQ(reproducibility_of(resumed.trainer, straight.states[4], {}).text(), "bitwise");
  resumed.trainer.train();
  EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 5, straight.losses.end()));

  if (world_.size() == 1) return;
  const Archive compressed = train(kPowerSgd).states.back();
  SmallRun other(world_, with(with(kBase, kPowerSgd), larger));
  restore(other.trainer, compressed);
  EXPECT_EQ(reproducibility_of(other.trainer, compressed, {}).text(),
            "order, because it was written with different values of ddp.bucket_mb or ddp.last_bucket_mb");
}

/// Counts the steps of all starts of a run.
class CountingHook : public Hook {
 public:
  explicit CountingHook(std::int64_t& count)
      : Hook({}, {hook_state(
                     "steps/all",
                     [&count](Archive& archive, const std::string& group) { archive.set(group, "count", count); },
                     [&count](const Archive& archive, const std::string& group) {
                       count = archive.integer(group, "count");
                     })}),
        count_(&count) {}
  void after_step(RunView&, const StepReport&) override { ++*count_; }

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
