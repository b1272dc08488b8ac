// SPDX-License-Identifier: BSD-3-Clause
// A teacher in runs of all layouts.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/setup/teacher.hpp"
#include "parallel/store/parameter_store.hpp"
#include "small_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace distillation_test {

const Settings kSmall = {
    {"model.name", "mlp"}, {"model.hidden", "16"},    {"model.dropout", "0.2"},         {"data.train_size", "100"},
    {"optim.lr", "0.01"},  {"train.max_steps", "12"}, {"train.global_batch_size", "12"}};

using Values = std::map<std::string, at::Tensor>;  // values by name

struct DistilledRun : SmallRun {
  DistilledRun(const mpi::Communicator& world, const Settings& settings)
      : SmallRun(world, settings),
        digest(attach_teacher(resources, *model.wrapper, sections, builtin_registry(), *splits.train)) {
    if (!digest.empty()) trainer.add_hook(teacher_hook(digest));
  }

  Values values() {
    Values values;
    model.wrapper->store().read_whole([&] {
      for (const auto& item : model.wrapper->model().named_parameters()) {
        values[item.key()] = item.value().detach().clone();
      }
    });
    return values;
  }

  std::string digest;
};

class DistillationTest : public ::testing::Test {
 protected:
  /// A teacher of another shape than the model, with other values than those of seed 1.
  DistillationTest() {
    SmallRun teacher(world_, {{"model.name", "mlp"},
                              {"model.hidden", "24,8"},
                              {"model.dropout", "0.5"},
                              {"run.seed", "2"},
                              {"data.train_size", "100"}});
    shared_ = world_.broadcast(folder_.path());
    const checkpoints::Archive archive = capture(teacher.trainer, "", world_.is_root());
    if (world_.is_root()) checkpoints::write(shared_, 0, archive);
    world_.barrier();
  }
  ~DistillationTest() override { world_.barrier(); }

  Settings distilled(const Settings& more = {}) const {
    return with(with(kSmall, {{"loss.name", "distill"},
                              {"distill.from", shared_ + "/step-000000000000"},
                              {"distill.model", "mlp,hidden=24,8,dropout=0.5"},
                              {"distill.alpha", "0.9"}}),
                more);
  }

  template <class Failure>
  std::string refusal(const Settings& more) {
    try {
      const DistilledRun run(world_, distilled(more));
      return "";
    } catch (const Failure& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;
};

// Each sample belongs to the same lane on any number of ranks, and the teacher draws nothing.
TEST_F(DistillationTest, LanesGiveTheSameBitsWithEveryLayout) {
  const Settings lanes = distilled({{"train.lanes", "12"}});
  DistilledRun expected(world_, lanes);
  expected.trainer.train();
  DistilledRun plain(world_, with(kSmall, {{"train.lanes", "12"}}));
  plain.trainer.train();
  EXPECT_NE(plain.losses, expected.losses);
  for (const Settings& layout :
       {Settings{{"model.recompute", "hidden*"}}, {{"strategy.name", "sharded"}, {"strategy.stage", "1"}}}) {
    DistilledRun run(world_, with(lanes, layout));
    run.trainer.train();
    EXPECT_EQ(run.losses, expected.losses) << layout.back().first;
    for (const auto& [name, value] : run.values()) {
      EXPECT_TRUE(at::equal(value, expected.values().at(name))) << layout.back().first << " " << name;
    }
  }
}

TEST_F(DistillationTest, AllLayoutsTrainTheSameLoss) {
  const Settings still = distilled({{"model.dropout", "0"}});
  DistilledRun expected(world_, still);
  expected.trainer.train();
  for (const Settings& layout :
       {Settings{{"train.micro_batch", "1"}},
        {{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
        {{"strategy.name", "sharded"}, {"strategy.stage", "3"}},
        {{"strategy.name", "sharded"}, {"strategy.stage", "3"}, {"model.recompute", "hidden*"}},
        {{"train.step_kind", "standard"}},
        {{"train.step_kind", "simple"}}}) {
    DistilledRun run(world_, with(still, layout));
    run.trainer.train();
    ASSERT_EQ(run.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < run.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i], expected.losses[i], 1e-4 * std::abs(expected.losses[i])) << layout.back().first << i;
    }
  }
  DistilledRun half(world_, with(still, {{"train.precision", "bf16"}}));
  half.trainer.train();
  EXPECT_NEAR(half.losses.front(), expected.losses.front(), 0.05 * expected.losses.front());
  EXPECT_NE(half.losses, expected.losses);
}

TEST_F(DistillationTest, TheTeacherIsNeitherTrainedNorStored) {
  DistilledRun run(world_, distilled());
  DistilledRun same(world_, distilled());
  EXPECT_EQ(run.digest, same.digest);
  run.trainer.train();
  const checkpoints::Archive archive = capture(run.trainer, "", true);
  const auto count = [](const checkpoints::Archive& stored) { return stored.arrays_in("/model/params").size(); };
  EXPECT_EQ(count(archive), run.model.wrapper->model().named_parameters().size());
  EXPECT_EQ(run.model.wrapper->model().named_parameters().size(), 4U);
}

TEST_F(DistillationTest, AnInterruptedRunContinuesBitForBitWithTheSameTeacher) {
  for (const Settings& layout : {Settings{}, {{"train.lanes", "12"}}}) {
    DistilledRun straight(world_, distilled(layout));
    straight.trainer.train();
    DistilledRun first(world_, distilled(layout));
    first.trainer.add_hook(Priority::low, callback_hook({.before_agreement = [](RunView& view) {
                             if (view.progress.step + 1 == 5) view.requests.end();
                           }}));
    first.trainer.train();
    DistilledRun resumed(world_, distilled(layout));
    restore(resumed.trainer, capture(first.trainer, "", true));
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 5, straight.losses.end()));
    for (const auto& [name, value] : resumed.values()) {
      EXPECT_TRUE(at::equal(value, straight.values().at(name))) << name;
    }
  }
  DistilledRun first(world_, distilled());
  const checkpoints::Archive archive = capture(first.trainer, "", true);
  if (world_.is_root()) checkpoints::write(shared_ + "/other", 0, archive);
  world_.barrier();
  DistilledRun other(
      world_, distilled({{"distill.from", shared_ + "/other/step-000000000000"}, {"distill.model", "mlp,hidden=16"}}));
  try {
    restore(other.trainer, archive);
    ADD_FAILURE() << "another teacher was accepted";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("had a teacher with other weights"), std::string::npos) << error.what();
  }
}

TEST_F(DistillationTest, WhatDoesNotFitIsRefusedOnEveryRank) {
  const auto expect_words = [](const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  };
  expect_words(refusal<CheckpointError>({{"distill.from", "/nowhere.pt"}}), {"/nowhere.pt"});
  expect_words(refusal<CheckpointError>({{"distill.model", "mlp,hidden=24,9"}}),
               {"hidden1.weight  float32 [8, 24]  float32 [9, 24]", "distill.model"});
  expect_words(refusal<ConfigError>({{"distill.model", ""}}), {"distill.model", "must name the model"});
  expect_words(refusal<ConfigError>({{"distill.model", "mlp,hiden=24"}}), {"hiden", "hidden"});
  expect_words(refusal<ConfigError>({{"distill.from", ""}}), {"distill needs a teacher; set distill.from"});
  expect_words(refusal<ConfigError>({{"loss.name", "cross_entropy"}}), {"set loss.name=distill"});
  expect_words(
      refusal<ConfigError>({{"model.preprocess", "image"}, {"model.image_mean", "0.5"}, {"model.image_std", "1"}}),
      {"model.preprocess", "use the same for both"});
}

}  // namespace distillation_test
}  // namespace lockstep::engine
