// SPDX-License-Identifier: BSD-3-Clause
// Components of checkpoints: a user's own, and parameters that are not trained.
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <optional>

#include "checkpoints/store/store.hpp"
#include "engine/resume/components.hpp"
#include "engine/resume/run_state.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace stateful_test {

using checkpoints::Archive;
using Level = Reproducibility::Degree;

const std::string kGroup = "/hooks/memory";

/// A row of numbers that every rank has.
class Memory : public Stateful {
 public:
  explicit Memory(std::int64_t size, double value = 0) : values(at::full({size}, value, at::kDouble)) {}

  std::string name() const override { return "memory"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_rng; }
  void capture(const StateWriter& writer) override {
    writer.put(kGroup + "/values", values);
    writer.set(kGroup, "ranks", std::int64_t{1});
  }
  void compare(const Archive&, const RestoreOptions&, CompatibilityReport& report) override {
    report.expect_array(MismatchKind::other, kGroup + "/values", values);
  }
  void restore(const Archive& archive, const RestoreOptions&) override {
    values.copy_(tensor_over(archive.array(kGroup + "/values")));
  }
  Reproducibility reproducibility(const Archive&, const RestoreOptions& options) override {
    return options.resets_rng ? Reproducibility{Level::statistical, "the memory is empty"} : Reproducibility();
  }
  void visit_arrays(const std::function<void(const LocalState&)>& visit) override {
    visit({.path = kGroup + "/values", .tensor = values, .is_own = true});
  }

  at::Tensor values;
};

class RememberingHook : public Hook {
 public:
  explicit RememberingHook(const std::shared_ptr<Memory>& memory) : Hook({}, {memory}), memory_(memory) {}
  void after_step(RunView&, const StepReport& report) override {
    memory_->values[report.progress.step % memory_->values.numel()] = report.loss;
  }

 private:
  std::shared_ptr<Memory> memory_;
};

struct RememberingRun : SmallRun {
  RememberingRun(const mpi::Communicator& world, std::int64_t size, const Settings& more = {})
      : SmallRun(world, with(kTwelveSteps, more)), memory(std::make_shared<Memory>(size)) {
    trainer.add_hook(Priority::normal, std::make_unique<RememberingHook>(memory));
  }

  std::shared_ptr<Memory> memory;
};

class StatefulTest : public ::testing::Test {
 protected:
  StatefulTest() : path_(world_.broadcast(folder_.path())) {}
  ~StatefulTest() override { world_.barrier(); }

  /// The checkpoint of six steps, in a file.
  std::string saved() {
    RememberingRun run(world_, 4, {{"train.max_steps", "6"}});
    run.trainer.train();
    const Archive archive = capture(run.trainer, "", world_.is_root());
    EXPECT_EQ(archive.has(kGroup + "/values"), world_.is_root());
    if (world_.is_root()) checkpoints::write(path_, 6, archive);
    world_.barrier();
    return checkpoints::checkpoint_of(path_, 6);
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string path_;  // rank 0's folder
};

TEST_F(StatefulTest, AComponentOfAHookIsSavedAndRestored) {
  const std::string checkpoint = saved();
  RememberingRun straight(world_, 4);
  straight.trainer.train();
  for (const bool reads_into_targets : {false, true}) {
    RememberingRun resumed(world_, 4);
    EXPECT_TRUE(at::equal(resumed.memory->values, at::zeros({4}, at::kDouble)));
    checkpoints::RestoreTargets targets;
    if (reads_into_targets) targets = restore_targets(resumed.trainer);
    EXPECT_EQ(targets.contains(kGroup + "/values"), reads_into_targets);
    Archive archive;
    resumed.model.wrapper->parameters().write([&] { archive = checkpoints::read(checkpoint, targets); });
    restore(resumed.trainer, archive);
    EXPECT_FALSE(at::equal(resumed.memory->values, at::zeros({4}, at::kDouble)));
    EXPECT_EQ(reproducibility_of(resumed.trainer, archive).text(), "bitwise");
    resumed.trainer.train();
    EXPECT_TRUE(at::equal(resumed.memory->values, straight.memory->values));
  }
}

TEST_F(StatefulTest, WhatDoesNotFitIsRefusedBeforeAnythingChanges) {
  const Archive archive = checkpoints::read(saved());
  RememberingRun other(world_, 5);
  const at::Tensor before = other.model.wrapper->model().parameters()[0].clone();
  std::string text;
  try {
    restore(other.trainer, archive);
  } catch (const CheckpointError& error) {
    EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
    text = error.what();
  }
  EXPECT_NE(text.find(kGroup + "/values is float64 [4], the run has float64 [5]"), std::string::npos) << text;
  EXPECT_TRUE(at::equal(before, other.model.wrapper->model().parameters()[0]));
  EXPECT_EQ(other.trainer.progress().step, 0);
}

TEST_F(StatefulTest, OptionsLeaveItOut) {
  const Archive archive = checkpoints::read(saved());
  RememberingRun run(world_, 5);
  const RestoreOptions options{.resets_rng = true};
  restore(run.trainer, archive, options);
  EXPECT_EQ(run.trainer.progress().step, 6);
  EXPECT_TRUE(at::equal(run.memory->values, at::zeros({5}, at::kDouble)));
  EXPECT_EQ(reproducibility_of(run.trainer, archive, options).text(), "statistical, because the memory is empty");
  EXPECT_FALSE(restore_targets(run.trainer, options).contains(kGroup + "/values"));
}

TEST_F(StatefulTest, OneThatDoesNotTakeItsValuesIsNoticed) {
  class Forgetful : public Memory {
   public:
    Forgetful() : Memory(4, 1) {}
    void restore(const Archive&, const RestoreOptions&) override {}
  };
  const Archive archive = checkpoints::read(saved());
  SmallRun run(world_, kTwelveSteps);
  run.trainer.add_hook(Priority::normal, std::make_unique<RememberingHook>(std::make_shared<Forgetful>()));
  EXPECT_THROW(restore(run.trainer, archive), CheckpointError);
}

TEST_F(StatefulTest, NamesAreUnique) {
  RememberingRun run(world_, 4);
  EXPECT_THROW(run.trainer.add_hook(Priority::normal, std::make_unique<RememberingHook>(run.memory)), std::logic_error);
  run.trainer.add_hook(Priority::normal, callback_hook({.states = {model_state(*run.model.wrapper)}}));
  EXPECT_THROW(capture(run.trainer, "", world_.is_root()), std::logic_error);
}

// The first in the list of components is named of the differences that lower it to the same level.
TEST_F(StatefulTest, TheReproducibilityOfARunIsThatOfItsWorstComponent) {
  SmallRun first(world_, kTwelveSteps);
  const Archive same = capture(first.trainer, "", true);
  const auto text_of = [&](const Settings& settings, const Archive& archive, const RestoreOptions& options = {}) {
    SmallRun run(world_, with(kTwelveSteps, settings));
    return reproducibility_of(run.trainer, archive, options).text();
  };
  const Settings hook = {{"ddp.comm_hook", "powersgd"}};
  const Settings precision = {{"train.precision", "bf16"}};
  EXPECT_EQ(text_of({}, same), "bitwise");
  EXPECT_EQ(text_of({}, same, {.resets_rng = true, .resets_average = true}), "bitwise");
  Archive threads = same;
  threads.set("/", "threads", std::int64_t{99});
  EXPECT_EQ(text_of({}, threads), "order, because it was written with run.threads = 99");
  Archive ranks = threads;
  ranks.set("/", "world_size", std::int64_t{7});
  const std::string by_ranks = "order, because it was written by 7 ranks and train.lanes is off";
  EXPECT_EQ(text_of({}, ranks), by_ranks);
  Archive stage = ranks;
  stage.set("/", "sharding", std::int64_t{2});
  EXPECT_EQ(text_of({}, stage), world_.size() == 1 ? by_ranks
                                                   : "order, because it was written by a run of sharding stage 2 (0: "
                                                     "none), which rounds sums differently");
  Archive lanes = same;
  lanes.set("/", "lanes", std::int64_t{4});
  EXPECT_EQ(text_of({}, lanes),
            "statistical, because train.lanes is 0 and was 4, which changes batch norm, dropout and sums");
  EXPECT_EQ(text_of(precision, stage), "statistical, because train.precision is bf16 and was fp32");
  EXPECT_EQ(text_of(with(precision, hook), stage), "statistical, because ddp.comm_hook is powersgd and was none");
  for (const RestoreOptions& options : {RestoreOptions{.is_partial = true}, RestoreOptions{.resets_optim = true},
                                        RestoreOptions{.resets_sched = true}, RestoreOptions{.resets_sampler = true}}) {
    EXPECT_EQ(text_of(with(precision, hook), stage, options),
              "statistical, because not all of the state was taken over");
  }
}

// All ranks of a node read a part of what they share, and then the run holds what the file holds.
TEST_F(StatefulTest, ACheckpointIsReadIntoTheMemoryOfTheRun) {
  const Settings averaged = {{"ema.kind", "ema"}};
  const std::vector<Settings> kinds = {
      averaged, averaged, {{"train.precision", "fp16"}, {"ddp.shared_parameters", "false"}}};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE(i);
    const Settings settings = with(kTwelveSteps, with(kinds[i], {{"train.max_steps", "6"}}));
    SmallRun first(world_, settings);
    const bool has_begun = i == 0;  // else the average, if there is one, has no updates
    if (has_begun) first.trainer.add_hook(average_hook(EmaSettings::from(first.sections.at("ema"))));
    first.trainer.train();
    const Archive archive = capture(first.trainer, "", world_.is_root());
    const std::string folder = path_ + "/" + std::to_string(i);
    if (world_.is_root()) checkpoints::write(folder, 6, archive);
    world_.barrier();
    SmallRun resumed(world_, settings);
    const checkpoints::RestoreTargets targets = restore_targets(resumed.trainer);
    EXPECT_TRUE(targets.contains("/model/params/hidden0.weight"));
    EXPECT_TRUE(targets.contains("/optim/0/state/exp_avg/hidden0.weight"));
    Archive read;
    resumed.model.wrapper->parameters().write(
        [&] { read = checkpoints::read(checkpoints::checkpoint_of(folder, 6), targets); });
    EXPECT_EQ(read.array("/model/params/hidden0.weight").bytes.data(),
              targets.at("/model/params/hidden0.weight").memory.data());
    restore(resumed.trainer, read);
    EXPECT_EQ(testing::differences(capture(resumed.trainer, "", true), read), "");
    const optim::ModelAverage* const average = resumed.updates.average.get();
    EXPECT_EQ(average != nullptr, i < 2);
    EXPECT_EQ(average != nullptr && average->has_begun(), has_begun);
  }
}

/// One layer is trained, the other is not.
class HalfFrozen : public models::Model {
 public:
  HalfFrozen(const Section&, const Task& task) {
    frozen = register_module("frozen", std::make_shared<models::Linear>(28 * 28, 8));
    head = register_module("head", std::make_shared<models::Linear>(8, task.classes));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& images) override {
    return models::run(*head, models::run(*frozen, images.flatten(1)));
  }

  std::shared_ptr<models::Linear> frozen;
  std::shared_ptr<models::Linear> head;
};

Registry registry_with_half_frozen() {
  Registry registry;
  registry.models.push_back(
      {.name = "half_frozen", .help = "", .keys = {}, .make = [](const Section& model, const Task& task) {
         return std::static_pointer_cast<models::Model>(std::make_shared<HalfFrozen>(model, task));
       }});
  return registry;
}

// The ranks of a node share the trained parameters, and each has the others for itself.
TEST_F(StatefulTest, ParametersThatAreNotTrainedAreRestoredOnEveryRank) {
  const Registry registry = registry_with_half_frozen();
  for (const char* const is_shared : {"true", "false"}) {
    const Settings settings = with(kTwelveSteps, {{"model.name", "half_frozen"}, {"ddp.shared_parameters", is_shared}});
    SmallRun first(world_, settings, registry);
    const auto frozen_of = [](SmallRun& run) {
      return dynamic_cast<HalfFrozen&>(run.model.wrapper->model()).frozen->weight;
    };
    frozen_of(first).fill_(7);
    SmallRun resumed(world_, settings, registry);
    EXPECT_FALSE(at::equal(frozen_of(resumed), frozen_of(first)));
    restore(resumed.trainer, capture(first.trainer, "", true));
    EXPECT_TRUE(at::equal(frozen_of(resumed), frozen_of(first)));
  }
}

/// Sums what each rank has counted, when a checkpoint is written.
class CountingHook : public Hook {
 public:
  CountingHook(std::int64_t weight, std::vector<std::int64_t>& sums)
      : Hook({},
             {hook_state(
                 "counting", [this](Archive& archive, const std::string& group) { archive.set(group, "sum", sum_); },
                 [this](const Archive& archive, const std::string& group) {
                   before_ = archive.integer(group, "sum");
                 })}),
        weight_(weight),
        sums_(&sums) {}

  void after_step(RunView& run, const StepReport&) override { mine_ += weight_ * (run.world.rank() + 1); }
  void before_save(RunView& run) override {
    sum_ = before_ + run.world.all_reduce(mine_, mpi::Op::sum);
    sums_->push_back(sum_);
  }

 private:
  std::int64_t weight_;
  std::vector<std::int64_t>* sums_;
  std::int64_t before_ = 0;
  std::int64_t mine_ = 0;
  std::int64_t sum_ = 0;
};

// A user's hook of checkpoints, as a row of the registry that the configuration selects.
TEST_F(StatefulTest, ARowOfTheRegistryTakesPartInCheckpoints) {
  std::vector<std::int64_t> sums;
  Registry registry;
  registry.hooks.push_back({.name = "counting",
                            .help = "counts",
                            .keys = {keys::integer("weight", "1", "of a step", 1, 9)},
                            .make = [&sums](const Section& options, const HookContext&) {
                              return std::make_unique<CountingHook>(options.integer("weight"), sums);
                            }});
  const auto trained = [&](const Settings& more, const std::optional<std::string>& from) {
    SmallRun run(world_, with(kTwelveSteps, with({{"train.hooks", "counting,weight=5"}}, more)), registry);
    for (auto& [priority, hook] : make_hooks(run.sections, registry.hooks)) {
      run.trainer.add_hook(priority, std::move(hook));
    }
    run.trainer.add_hook(run.checkpoint_hook(path_ + "/counted", ""));
    if (from) restore(run.trainer, checkpoints::read(*from));
    run.trainer.train();
  };
  const std::int64_t of_a_step = 5 * world_.size() * (world_.size() + 1) / 2;
  trained({{"train.max_steps", "6"}}, std::nullopt);
  ASSERT_FALSE(sums.empty());
  EXPECT_EQ(sums.back(), 6 * of_a_step);
  world_.barrier();  // rank 0 has written
  trained({}, checkpoints::checkpoint_of(path_ + "/counted", 6));
  EXPECT_EQ(sums.back(), 12 * of_a_step);
}

}  // namespace stateful_test
}  // namespace lockstep::engine
