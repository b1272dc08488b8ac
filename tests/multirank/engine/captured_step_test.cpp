// SPDX-License-Identifier: BSD-3-Clause
// Captured steps on the stand-in for a GPU: what LibTorch computes on the CPU is recorded operation by operation and
// replayed, with the memory and the numbers that the recording saw. Steps in float64, because Lockstep's own loops over
// float32, which only a CPU has, are not recorded.
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "engine/evaluation/evaluation.hpp"
#include "small_run.hpp"
#include "support/recorded_ops.hpp"
#include "support/stand_in_gpu.hpp"

namespace lockstep::engine {
namespace captured_step_test {

using testing::stand_in;

constexpr int kSteps = 12;

const Settings kCaptured =
    with(kTwelveSteps,
         {{"train.precision", "fp64"}, {"model.dropout", "0.2"}, {"sched.rule", "linear,start_factor=0.2,end=12"}});

Resources make_on_stand_in(const Sections& sections, const mpi::Communicator& world) {
  return make_resources(sections, world, Purpose::training, testing::stand_in_gpu());
}

/// A model for samples of two lengths, which may look at a value on the host.
class Lengths : public models::Model {
 public:
  Lengths(bool looks, std::vector<int> short_steps) : looks_(looks), short_steps_(std::move(short_steps)) {
    head_ = register_module("head", std::make_shared<models::Linear>(28, 10));
  }
  batch::Batch preprocess(batch::Batch batch, bool is_training) const override {
    const bool is_short = std::find(short_steps_.begin(), short_steps_.end(), step_) != short_steps_.end();
    if (is_training && is_short) batch.set_input(batch.input().narrow(2, 0, 14).contiguous());
    return batch;
  }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor means = images.mean(at::IntArrayRef{1, 2});
    if (looks_) looked_ += means.sum().item<double>();
    return models::run(*head_, means);
  }
  static int step_;  // step of the run, from 1

 private:
  bool looks_;
  std::vector<int> short_steps_;
  double looked_ = 0;
  std::shared_ptr<models::Linear> head_;
};

int Lengths::step_ = 0;

/// Tells the model where the run is.
class CountingHook : public Hook {
 public:
  CountingHook() : Hook(HookReads::nothing()) {}
  void before_step(RunView& run) override { Lengths::step_ = static_cast<int>(run.progress.step) + 1; }
};

Registry registry_with_lengths() {
  Registry registry;
  const auto add = [&registry](const char* name, auto make) {
    registry.models.push_back({.name = name, .help = "", .keys = {}, .make = make});
  };
  add("looking", [](const Section&, const Task&) {
    return std::shared_ptr<models::Model>(std::make_shared<Lengths>(true, std::vector<int>{}));
  });
  add("once_short", [](const Section&, const Task&) {
    return std::shared_ptr<models::Model>(std::make_shared<Lengths>(false, std::vector<int>{7}));
  });
  add("short_from_7", [](const Section&, const Task&) {
    return std::shared_ptr<models::Model>(std::make_shared<Lengths>(false, std::vector<int>{7, 8, 9, 10, 11, 12}));
  });
  return registry;
}

class CapturedStepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::reset_stand_in();
    stand_in().has_all_memory = true;
    stand_in().undoes_captures = true;
    stand_in().on_capture = [](bool begins) {
      begins ? testing::begin_recording(testing::stand_in_recording()) : testing::undo_recording();
    };
    stand_in().on_failed_capture = testing::undo_recording;
  }

  struct Trained {
    std::vector<double> losses;
    std::vector<double> norms;
    std::vector<at::Tensor> values;  // parameters, states of the optimizer, average
    int captures = 0;
    int launches = 0;
  };

  std::unique_ptr<SmallRun> make(const Settings& settings, bool compiles) const {
    auto run = std::make_unique<SmallRun>(world_, with(settings, {{"run.cuda_graphs", compiles ? "true" : "false"}}),
                                          registry_, std::nullopt, make_on_stand_in);
    run->trainer.add_hook(average_hook(EmaSettings::from(run->sections.at("ema"))));
    run->trainer.add_hook(Priority::high, std::make_unique<CountingHook>());
    return run;
  }

  static Trained result_of(SmallRun& run) {
    Trained result{.losses = run.losses, .norms = run.norms, .values = {}};
    const auto note = [&] {
      for (const at::Tensor& p : run.model.wrapper->model().parameters()) {
        result.values.push_back(p.detach().clone());
      }
    };
    note();
    if (run.updates.average) with_average(*run.model.wrapper, run.updates.average.get(), note);
    optim::Optimizer& optimizer = run.updates.first().optimizer();
    for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
      const auto state = optimizer.state(0, slot);
      result.values.push_back(
          at::from_blob(state.data(), {static_cast<std::int64_t>(state.size())}, at::kByte).clone());
    }
    result.values.push_back(
        at::tensor(std::vector<std::int64_t>(optimizer.steps(0).begin(), optimizer.steps(0).end())));
    return result;
  }

  Trained train(const Settings& settings, bool compiles) const {
    const auto run = make(settings, compiles);
    stand_in().captures = stand_in().launches = 0;
    run->trainer.train();
    Trained result = result_of(*run);
    result.captures = stand_in().captures;
    result.launches = stand_in().launches;
    return result;
  }

  static void expect_same(const Trained& captured, const Trained& eager) {
    EXPECT_EQ(captured.losses, eager.losses);
    EXPECT_EQ(captured.norms, eager.norms);
    ASSERT_EQ(captured.values.size(), eager.values.size());
    for (std::size_t i = 0; i < eager.values.size(); ++i) {
      EXPECT_TRUE(at::equal(captured.values[i], eager.values[i])) << i;
    }
  }

  /// Captured and eager steps do the same, bit for bit.
  Trained compare(const Settings& settings, int captures = 1, int launches = kSteps - 3) const {
    const Trained eager = train(settings, false);
    Trained captured = train(settings, true);
    EXPECT_EQ(eager.captures, 0);
    EXPECT_EQ(captured.captures, captures);
    EXPECT_EQ(captured.launches, launches);
    expect_same(captured, eager);
    return captured;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  Registry registry_ = registry_with_lengths();
};

TEST_F(CapturedStepTest, TrainsToTheBitsOfEagerSteps) {
  const std::vector<Settings> all = {
      {{"optim.name", "sgd"}, {"optim.momentum", "0.9"}, {"train.clip_norm", "0.5"}},
      {{"optim.name", "adamw"}, {"optim.weight_decay", "0.1"}, {"train.clip_norm", "0.5"}, {"ema.kind", "ema"}},
      {{"optim.name", "nadam"}, {"optim.weight_decay", "0.1"}, {"optim.no_decay", "norms_biases"}},
      {{"optim.name", "lamb"}},
      {{"optim.name", "muon"}},
      {{"model.name", "cnn"}, {"ddp.buffers", "broadcast"}},
      {{"train.step_kind", "amp"}, {"train.nonfinite", "skip"}, {"ddp.bucket_mb", "0.003814697265625"}},
      {{"loss.ignore_index", "0"}, {"loss.class_weights", "1,2,3,4,5,0.5,1,1,2,1"}},  // divisors differ by batch
      {{"loss.label_smoothing", "0.1"}},
  };
  for (const Settings& more : all) {
    SCOPED_TRACE(more.front().second);
    const Trained captured = compare(with(kCaptured, more));
    EXPECT_EQ(captured.losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_LT(captured.losses.back(), captured.losses.front());
  }
}

// The loss scale is a number that changes, and what overflows is decided within the graph.
TEST_F(CapturedStepTest, StepsThatOverflowAreSkippedAsEagerly) {
  const Settings settings = with(kTwelveSteps, {{"train.precision", "fp16"}, {"train.init_scale", "1e9"}});
  const auto run = make(settings, true);
  run->trainer.train();
  const auto eager = make(settings, false);
  eager->trainer.train();
  EXPECT_EQ(stand_in().captures, 1);
  expect_same(result_of(*run), result_of(*eager));
  const optim::GradScaler::State captured_state = run->updates.first().scaler()->state();
  const optim::GradScaler::State eager_state = eager->updates.first().scaler()->state();
  EXPECT_GT(captured_state.skipped_steps, 3);  // some of them in the graph
  EXPECT_EQ(captured_state.skipped_steps, eager_state.skipped_steps);
  EXPECT_EQ(captured_state.scale, eager_state.scale);
}

// The host queues a step before it knows the result of the previous one, unless a hook reads each report.
TEST_F(CapturedStepTest, AHostThatWaitsForEachStepTrainsToTheSameBits) {
  class WaitingHook : public Hook {
   public:
    void after_step(RunView&, const StepReport& report) override { EXPECT_TRUE(report.is_measured); }
  };
  const Settings overflows = with(kTwelveSteps, {{"train.precision", "fp16"}, {"train.init_scale", "1e9"}});
  for (const Settings& settings :
       {kCaptured, with(kCaptured, {{"train.clip_norm", "0.5"}, {"train.nonfinite", "skip"}}), overflows}) {
    for (const bool compiles : {true, false}) {
      const Trained late = train(settings, compiles);
      const auto waiting = make(settings, compiles);
      waiting->trainer.add_hook(Priority::normal, std::make_unique<WaitingHook>());
      waiting->trainer.train();
      expect_same(late, result_of(*waiting));
    }
  }
}

/// The micro-batches of this rank, for `settings` that do not make them unequal.
int micro_batches(const Settings& settings, const mpi::Communicator& world) {
  const Section train = sections_of(settings).at("train");
  const auto size = static_cast<int>(train.integer("micro_batch"));
  const auto share = static_cast<int>(train.integer("global_batch_size")) / world.size();
  return (share + size - 1) / size;
}

// One graph makes the gradients, one adds to them, as often as there are micro-batches between, and one updates.
TEST_F(CapturedStepTest, AccumulatedGradientsAreThoseOfEagerSteps) {
  for (const char* const size : {"1", "2", "5"}) {
    for (const Settings& more : std::vector<Settings>{
             {{"optim.name", "sgd"}, {"optim.momentum", "0.9"}},
             {{"model.name", "cnn"}, {"ddp.buffers", "broadcast"}, {"ddp.bucket_mb", "0.003814697265625"}},
             {{"loss.ignore_index", "0"}, {"train.clip_norm", "0.5"}}}) {
      SCOPED_TRACE(std::string(size) + " " + more.front().second);
      const Settings settings = with(with(kCaptured, {{"train.micro_batch", size}}), more);
      const int parts = micro_batches(settings, world_);
      const Trained captured = compare(settings, std::min(parts, 3), parts * (kSteps - 3));
      EXPECT_LT(captured.losses.back(), captured.losses.front());
    }
  }
}

TEST_F(CapturedStepTest, AccumulatedStepsThatChangeRunEagerlyAsAWhole) {
  const Settings settings = with(kCaptured, {{"train.micro_batch", "2"}, {"model.name", "once_short"}});
  const int parts = micro_batches(settings, world_);
  compare(settings, std::min(parts, 3), parts * (kSteps - 3 - 1));
}

TEST_F(CapturedStepTest, CommunicationHooksAreCaptured) {
  const Settings ddp = with(kCaptured, {{"strategy.name", "ddp"}, {"ddp.bucket_mb", "0.003814697265625"}});
  for (const char* const hook : {"fp16", "bf16", "noop"}) {
    SCOPED_TRACE(hook);
    compare(with(ddp, {{"ddp.comm_hook", hook}}));
    const Settings accumulated = with(ddp, {{"ddp.comm_hook", hook}, {"train.micro_batch", "2"}});
    const int parts = micro_batches(accumulated, world_);
    compare(accumulated, std::min(parts, 3), parts * (kSteps - 3));
  }
}

// The hooks do something else from some step on. Then three steps run eagerly, and the next one is recorded again.
TEST_F(CapturedStepTest, HooksThatBeginLaterAreRecordedAgain) {
  const Settings ddp = with(kCaptured, {{"strategy.name", "ddp"}});
  const Settings power = {{"ddp.comm_hook", "powersgd"}, {"ddp.powersgd_min_compression_rate", "0.1"}};
  const Settings local = {{"strategy.post_local", "2:all"}, {"strategy.post_local_group", "1"}};
  for (const bool is_batched : {false, true}) {
    const Settings settings = with(with(ddp, power), {{"ddp.powersgd_batched", is_batched ? "true" : "false"}});
    compare(with(settings, {{"ddp.powersgd_start_step", "2"}}));
    compare(with(settings, {{"ddp.powersgd_start_step", "6"}}), world_.size() > 1 ? 2 : 1,
            kSteps - (world_.size() > 1 ? 6 : 3));
  }
  compare(with(with(ddp, local), {{"strategy.post_local_begin", "0"}}));
  compare(with(with(ddp, local), {{"strategy.post_local_begin", "6"}}), world_.size() > 1 ? 2 : 1,
          kSteps - (world_.size() > 1 ? 6 : 3));
}

TEST_F(CapturedStepTest, TheStateOfAHookIsThatOfEagerSteps) {
  const Settings settings = with(kCaptured, {{"strategy.name", "ddp"},
                                             {"ddp.comm_hook", "powersgd"},
                                             {"ddp.powersgd_start_step", "2"},
                                             {"ddp.powersgd_min_compression_rate", "0.1"}});
  const auto state_of = [&](bool compiles) {
    const auto run = make(settings, compiles);
    run->trainer.train();
    return run->model.wrapper->hook_memory()->state();
  };
  const parallel::HookState captured = state_of(true);
  const parallel::HookState eager = state_of(false);
  EXPECT_EQ(captured.integers, eager.integers);
  if (world_.size() > 1) {
    EXPECT_EQ(eager.integers.at("step"), kSteps);
    EXPECT_GT(eager.tensors.size(), 1U);
  }
  for (const auto& [name, tensor] : eager.tensors) EXPECT_TRUE(at::equal(captured.tensors.at(name), tensor)) << name;
  for (const auto& [name, tensor] : eager.common) EXPECT_TRUE(at::equal(captured.common.at(name), tensor)) << name;
}

// There is no dropout: draws that backward repeats are recorded on GPUs only.
TEST_F(CapturedStepTest, RecomputedBlocksAreCaptured) {
  compare(with(kCaptured, {{"model.recompute", "hidden*"}, {"model.dropout", "0"}}));
}

TEST_F(CapturedStepTest, ACheckpointContinuesTheRunInAnyWay) {
  const Trained whole = train(kCaptured, false);
  const auto begun = make(with(kCaptured, {{"train.max_steps", "6"}}), true);
  begun->trainer.train();
  const checkpoints::Archive archive = capture(begun->trainer, "", world_.is_root());
  if (world_.size() > 1) return;  // only rank 0 has it; a file would carry it to the others
  for (const bool compiles : {true, false}) {
    const auto continued = make(kCaptured, compiles);
    restore(continued->trainer, archive);
    continued->trainer.train();
    const Trained result = result_of(*continued);
    EXPECT_EQ(result.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
    for (std::size_t i = 0; i < whole.values.size(); ++i)
      EXPECT_TRUE(at::equal(result.values[i], whole.values[i])) << i;
  }
}

TEST_F(CapturedStepTest, OtherShapesRunEagerlyAndAreCapturedWhenTheyStay) {
  compare(with(kCaptured, {{"model.name", "once_short"}}), 1, kSteps - 3 - 1);
  compare(with(kCaptured, {{"model.name", "short_from_7"}}), 2, kSteps - 3 - 3);
}

// An option that the recorded work does not read.
TEST_F(CapturedStepTest, AScheduleOfAnotherOptionRecordsAgain) {
  const Settings settings = with(kCaptured, {{"optim.name", "sgd"}, {"optim.momentum", "0.9"}});
  compare(with(settings, {{"sched.rule", "multistep,milestones=8,gamma=0.5,of=momentum"}}), 2);
}

TEST_F(CapturedStepTest, AModelThatLooksAtAValueOnTheHostTrainsEagerly) {
  compare(with(kCaptured, {{"model.name", "looking"}}), 0, 0);
}

TEST_F(CapturedStepTest, WhatTheDriverRefusesTrainsEagerly) {
  stand_in().capture_fault = "operation not permitted when stream is capturing";
  compare(kCaptured, 0, 0);
  EXPECT_EQ(stand_in().graphs, 0);
}

// Numbers that would change the operations in every step.
TEST_F(CapturedStepTest, ARunThatChangesInEveryStepGivesUp) {
  const Settings settings = with(kCaptured, {{"optim.name", "sgd"},
                                             {"optim.momentum", "0.9"},
                                             {"train.max_steps", "20"},
                                             {"sched.rule", "linear,start_factor=0.2,end=20,of=momentum"}});
  const Trained captured = compare(settings, 10, 10);
  EXPECT_EQ(captured.losses.size(), 20U);
}

TEST_F(CapturedStepTest, SettingsWithoutACapturedFormTrainEagerly) {
  const std::vector<Settings> all = {{{"train.step_kind", "standard"}},
                                     {{"ddp.find_unused_parameters", "true"}, {"strategy.name", "ddp"}},
                                     {{"optim.name", "lbfgs"}, {"optim.max_iter", "2"}},
                                     {{"strategy.name", "sharded"}, {"strategy.stage", "2"}}};
  for (const Settings& more : all) {
    SCOPED_TRACE(more.front().first);
    compare(with(kCaptured, more), 0, 0);
  }
  if (world_.size() == 1) return;  // one rank calls no hook
  const Settings random_start = {
      {"ddp.comm_hook", "powersgd"}, {"ddp.powersgd_warm_start", "false"}, {"strategy.name", "ddp"}};
  compare(with(kCaptured, random_start), 0, 0);
}

}  // namespace captured_step_test
}  // namespace lockstep::engine
