// SPDX-License-Identifier: BSD-3-Clause
// How a run is put together: the data are opened once, a model that is not trained has no optimizer, and what fails on
// one rank fails on all.
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/loaded_model.hpp"
#include "engine/state/model_tensors.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::engine {
namespace composition_test {

using checkpoints::Archive;

/// The built-in rows, and a count of how often a folder of images was opened.
Registry counting_registry(int& opened) {
  Registry registry;
  for (data::Source& row : registry.sources) {
    if (row.name != "folder") continue;
    row.open_images = [&opened, open = std::as_const(row.open_images)](const Section& data,
                                                                       const data::UsedSplits& used) {
      ++opened;
      return open(data, used);
    };
  }
  return registry;
}

class CompositionTest : public ::testing::Test {
 protected:
  CompositionTest() { root_ = world_.broadcast(folder_.path()); }
  ~CompositionTest() override { world_.barrier(); }

  mpi::Communicator world_ = mpi::Communicator::world();
  data::TemporaryFolder folder_;
  std::string root_;  // of rank 0
};

// The statistics of the images are measured, and the classes get the order of the published model.
TEST_F(CompositionTest, TrainingOpensItsDataOnce) {
  if (world_.is_root()) {
    for (const char* const name : {"a/1.ppm", "a/2.ppm", "a/3.ppm", "b/1.ppm", "b/2.ppm", "b/3.ppm"}) {
      const int value = 20 * (name[2] - '0') + (name[0] - 'a');
      data::write_file(folder_, std::string("images/") + name, data::ppm(2, 2, value, 2 * value, 3 * value));
    }
    data::write_file(folder_, "model/config.json",
                     R"({"architecture": "mlp", "num_classes": 2, "label_names": ["b", "a"]})");
  }
  world_.barrier();
  int opened = 0;
  const Registry registry = counting_registry(opened);
  const Settings settings = {{"data.name", "folder"},
                             {"data.path", root_ + "/images"},
                             {"data.cache", "off"},
                             {"data.val_fraction", "0"},
                             {"data.transform", "normalize,mean=auto"},
                             {"eval.every", "never"},
                             {"model.name", "mlp"},
                             {"model.hidden", "4"},
                             {"train.global_batch_size", "6"},
                             {"train.max_steps", "1"}};
  {
    const SmallRun like(world_, settings, registry);
    opened = 0;
    if (world_.is_root()) {
      std::vector<checkpoints::NamedArray> arrays;
      for (const NamedTensor& each : parameters_of(like.model.wrapper->model())) {
        arrays.push_back({each.name, array_of(each.tensor.detach(), each.name)});
      }
      checkpoints::write_foreign(root_ + "/model/model.safetensors", checkpoints::ExportKind::safetensors, arrays, {});
    }
    world_.barrier();
  }
  const Sections sections = sections_of(with(settings, {{"init.from", root_ + "/model"}}), registry);
  std::vector<std::int64_t> starts;
  std::vector<std::string> classes;
  TrainRequest request = quiet_request(sections, registry, root_ + "/ckpt", starts);
  const auto note = [&classes](RunView& view) { classes = view.data.splits().train->task().class_names; };
  request.hooks.emplace_back(Priority::normal, callback_hook({.before_train = note}));
  EXPECT_EQ(train(world_, std::move(request)), Outcome::done);
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(classes, (std::vector<std::string>{"b", "a"}));
}

/// Settings that training refuses, each because of its optimizers or of the division of batches.
const std::vector<Settings> kUntrainable = {{{"optim.paramwise", "bias_lr_mul=2"}},
                                            {{"train.clip_norm_type", "some"}},
                                            {{"ema.kind", "ema"}, {"ema.names", "nowhere"}},
                                            {{"train.lanes", "5"}}};

// Section `strategy` still says how an evaluated model is laid out.
TEST_F(CompositionTest, WhatIsNotTrainedHasNoOptimizer) {
  SmallRun run(world_, kTwelveSteps);
  run.trainer.train();
  const Archive archive = capture(run.trainer, "", world_.is_root());
  if (world_.is_root()) checkpoints::write(root_, 12, archive);
  world_.barrier();
  const double loss = evaluate(run, *run.splits.val, 200).mean_loss();
  for (const Settings& untrainable : kUntrainable) {
    EXPECT_THROW(SmallRun(world_, with(kTwelveSteps, untrainable)), ConfigError) << untrainable.front().first;
    for (const char* const strategy : {"auto", "sharded"}) {
      const Sections sections = sections_of(with(with(kTwelveSteps, untrainable), {{"strategy.name", strategy}}));
      for (const Purpose purpose : {Purpose::evaluation, Purpose::prediction}) {
        LoadedModel loaded =
            load_model(world_, sections, builtin_registry(), checkpoints::checkpoint_of(root_, 12), purpose);
        EXPECT_TRUE(loaded.model.plans.parts.empty());
        const bool is_sharded = purpose == Purpose::evaluation && std::string(strategy) == "sharded";
        EXPECT_EQ(loaded.model.wrapper->options().sharding.stage, is_sharded ? 3 : 0);
        const Evaluation found = evaluate_loaded(loaded, sections, builtin_registry());
        EXPECT_EQ(found.values.front(), std::pair(std::string("loss"), loss)) << untrainable.front().first;
      }
    }
  }
}

/// 24 samples of two classes, which cannot be read on one rank.
class Labelled : public data::Dataset, public data::SampleClasses {
 public:
  explicit Labelled(bool is_damaged) : is_damaged_(is_damaged) {}
  std::int64_t size() const override { return 24; }
  Task task() const override { return {.sample_shape = {4}, .classes = 2}; }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    const auto count = std::ssize(draws);
    return {at::zeros({count, 4}), at::zeros({count}, at::kLong)};
  }
  std::uint64_t digest() const override { return 1; }
  std::vector<std::int64_t> labels() const override {
    if (is_damaged_) throw DataError("the list of labels is damaged");
    std::vector<std::int64_t> labels(24);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 2);
    return labels;
  }

 private:
  bool is_damaged_;
};

TEST_F(CompositionTest, LabelsThatOneRankCannotReadEndAllRanks) {
  const int last = world_.size() - 1;
  for (const bool is_damaged : {false, true}) {
    Registry registry;
    registry.sources.push_back({.name = "labeled",
                                .help = "labeled",
                                .keys = {},
                                .open = [is_damaged = is_damaged && world_.rank() == last](const Section&) {
                                  return data::Splits{.train = std::make_shared<Labelled>(is_damaged)};
                                }});
    const Settings settings =
        with(kTwelveSteps, {{"data.name", "labeled"}, {"data.sampler", "class_balanced"}, {"eval.every", "never"}});
    try {
      SmallRun run(world_, settings, registry);
      EXPECT_FALSE(is_damaged);
    } catch (const DataError& error) {
      EXPECT_TRUE(is_damaged);
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      const std::string sentence = "the list of labels is damaged";
      EXPECT_EQ(error.what(), world_.size() == 1 ? sentence : "rank " + std::to_string(last) + ": " + sentence);
    }
  }
}

}  // namespace composition_test
}  // namespace lockstep::engine
