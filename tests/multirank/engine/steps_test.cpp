// SPDX-License-Identifier: BSD-3-Clause
// The steps that train.step_kind chooses from.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <torch/types.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "batch/nvtx_range.hpp"
#include "changed_digits.hpp"
#include "engine/steps/rows.hpp"
#include "small_run.hpp"
#include "support/draws.hpp"
#include "support/sentence.hpp"

namespace lockstep::engine {
namespace steps_test {

/// One linear layer with a loss and a penalty that says it is none.
class TwoLosses : public models::Model {
 public:
  explicit TwoLosses(const Task& task) {
    head_ = register_module("head", std::make_shared<models::Linear>(28 * 28, task.classes));
  }
  at::Tensor forward(const at::Tensor& images) override { return models::run(*head_, images.flatten(1)); }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    const at::Tensor parts = at::cross_entropy_loss(output, target, {}, at::Reduction::None);
    return {{"loss_class", parts}, {"penalty", std::vector<at::Tensor>{output.square().mean(), output.mean()}}};
  }

 private:
  std::shared_ptr<models::Linear> head_;
};

Registry registry_with_two_losses() {
  Registry registry;
  registry.models.push_back(
      {.name = "two_losses", .help = "", .keys = {}, .make = [](const Section&, const Task& task) {
         return std::shared_ptr<models::Model>(std::make_shared<TwoLosses>(task));
       }});
  return registry;
}

const Settings kTwoLosses = {{"model.name", "two_losses"},
                             {"data.train_size", "60"},
                             {"optim.lr", "0.01"},
                             {"train.max_steps", "5"},
                             {"train.global_batch_size", "12"}};

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

Trained trained(const Settings& settings, const Registry& registry = builtin_registry()) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, settings, registry);
  run.trainer.train();
  Trained result{.losses = run.losses, .parameters = {}};
  for (const at::Tensor& p : run.model.wrapper->model().parameters()) result.parameters.push_back(p.detach().clone());
  return result;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i) EXPECT_TRUE(at::equal(a.parameters[i], b.parameters[i])) << i;
}

TEST(StepsTest, OneLossIsTrainedAlikeByAll) {
  const std::int64_t share = 12 / mpi::Communicator::world().size();
  for (const Settings& more : {Settings{}, Settings{{"train.micro_batch", std::to_string((share + 1) / 2)}},
                               Settings{{"train.clip_norm", "0.5"}}, Settings{{"train.lanes", "12"}}}) {
    const Trained model = trained(with(kTwelveSteps, more));
    for (const char* step : {"simple", "amp", "standard"}) {
      SCOPED_TRACE(step);
      expect_same_bits(model, trained(with(kTwelveSteps, with(more, {{"train.step_kind", step}}))));
    }
  }
}

TEST(StepsTest, SixteenBitsAreForAmpAndModel) {
  const Settings bf16 = with(kTwelveSteps, {{"train.precision", "bf16"}});
  expect_same_bits(trained(bf16), trained(with(bf16, {{"train.step_kind", "amp"}})));
  try {
    trained(with(bf16, {{"train.step_kind", "simple"}}));
    FAIL() << "simple took bf16";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("use train.step_kind=amp"), std::string::npos) << error.what();
  }
}

// "model" trains what is called a loss, the others all that is returned.
TEST(StepsTest, WhatIsTrainedIsTheStepsChoice) {
  const Registry registry = registry_with_two_losses();
  const Trained named = trained(kTwoLosses, registry);
  const Trained all = trained(with(kTwoLosses, {{"train.step_kind", "simple"}}), registry);
  EXPECT_GT(all.losses.front(), named.losses.front());
  EXPECT_FALSE(at::equal(named.parameters.front(), all.parameters.front()));
}

TEST(StepsTest, AnUnknownStepNamesTheKnownOnes) {
  try {
    trained(with(kTwelveSteps, {{"train.step_kind", "simpel"}}));
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("simple"), std::string::npos) << error.what();
  }
}

TEST(StepsTest, ARowThatMakesNothingIsRefused) {
  for (const TrainStep& nothing : {TrainStep(LossStep()), TrainStep(ManualStep())}) {
    Registry registry;
    registry.steps.push_back(
        {.name = "mine", .help = "", .keys = {}, .make = [nothing](const Section&) { return nothing; }});
    const Sections sections = sections_of({{"train.step_kind", "mine"}}, registry);
    EXPECT_EQ(testing::sentence_of<ConfigError>([&] { make_step(sections.at("train"), registry.steps); }),
              "train.step_kind (test): its function `make` returned nothing");
  }
}

// A step is captured if it is the wrapper's own, and no host times its sections.
TEST(StepsTest, StepsThatAreOptionsOfTheWrapperAreCaptured) {
  Registry registry;
  registry.steps.push_back({.name = "mine", .help = "", .keys = {}, .make = [](const Section&) {
                              return LossStep([](models::Model&, const batch::Batch&) { return StepLosses(); });
                            }});
  const auto made = [&registry](const char* step, const char* is_manual = "false") {
    const Settings settings = {{"train.step_kind", step}, {"train.manual_reduction", is_manual}};
    return make_step(sections_of(settings, registry).at("train"), registry.steps);
  };
  for (const auto& [step, sum] :
       {std::pair{"model", models::LossSum::named}, {"simple", models::LossSum::all}, {"amp", models::LossSum::all}}) {
    ASSERT_TRUE(made(step).captured) << step;
    EXPECT_EQ(made(step).captured->sum, sum) << step;
    EXPECT_TRUE(made(step).reads_late) << step;
  }
  EXPECT_FALSE(made("standard").captured);
  EXPECT_FALSE(made("standard", "true").captured);
  EXPECT_TRUE(made("standard").reads_late);
  EXPECT_FALSE(made("mine").captured);
  EXPECT_TRUE(made("mine").reads_late);
}

// The row "mine" chooses other options of the same step.
TEST(StepsTest, AProgramChoosesOptions) {
  Registry registry = registry_with_two_losses();
  registry.steps.push_back({.name = "mine", .help = "", .keys = {}, .make = [](const Section&) {
                              return StepOptions{.sum = models::LossSum::all};
                            }});
  const auto trained_by = [&](const char* step) {
    return trained(with(kTwoLosses, {{"train.step_kind", step}}), registry);
  };
  expect_same_bits(trained_by("mine"), trained_by("simple"));
}

TEST(StepsTest, ALossStepKeepsItsState) {
  std::vector<int> calls;
  Registry registry;
  registry.steps.push_back({.name = "counting", .help = "", .keys = {}, .make = [&calls](const Section&) {
                              return LossStep(
                                  [&calls, count = 0](models::Model& model, const batch::Batch& batch) mutable {
                                    calls.push_back(++count);
                                    StepLosses step{.losses = {}, .outputs = models::run(model, batch)};
                                    step.losses = model.losses_of(step.outputs, batch);
                                    return step;
                                  });
                            }});
  expect_same_bits(trained(with(kTwelveSteps, {{"train.step_kind", "counting"}}), registry), trained(kTwelveSteps));
  std::vector<int> expected(12);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(calls, expected);
}

// The same average, made after backward; and nothing else changes.
TEST(StepsTest, ReductionByHandTrainsAlike) {
  const std::int64_t share = 12 / mpi::Communicator::world().size();
  for (const Settings& more : {Settings{}, Settings{{"train.micro_batch", std::to_string((share + 1) / 2)}},
                               Settings{{"train.clip_norm", "0.5"}}}) {
    const Settings settings = with(kTwelveSteps, with(more, {{"train.step_kind", "standard"}, {"optim.name", "sgd"}}));
    const Trained reducer = trained(settings);
    const Trained by_hand = trained(with(settings, {{"train.manual_reduction", "true"}}));
    for (std::size_t i = 0; i < reducer.losses.size(); ++i) EXPECT_NEAR(by_hand.losses[i], reducer.losses[i], 1e-6);
    for (std::size_t i = 0; i < reducer.parameters.size(); ++i) {
      EXPECT_TRUE(at::allclose(by_hand.parameters[i], reducer.parameters[i], 1e-5, 1e-7)) << i;
    }
  }
}

TEST(StepsTest, ReductionByHandIsForWholeGradients) {
  EXPECT_THROW(trained(with(kTwelveSteps, {{"train.step_kind", "standard"},
                                           {"train.manual_reduction", "true"},
                                           {"optim.name", "lbfgs"},
                                           {"optim.weight_decay", "0"}})),
               ConfigError);
}

/// Sees the hint alone.
class Hinted : public models::Model {
 public:
  Hinted() { head_ = register_module("head", std::make_shared<models::Linear>(10, 10)); }
  batch::Outputs forward_batch(const batch::Batch& batch) override { return models::run(*head_, batch.tensor("hint")); }

 private:
  std::shared_ptr<models::Linear> head_;
};

/// The source "hints": digits with a second input, by which a model knows the class. It does not help a model that does
/// not look at it.
Registry registry_with_hints() {
  Registry registry = registry_with_changed_digits(
      "hints",
      []() -> ChangeBatch {
        return [](batch::Batch& batch, std::span<const batch::Draw>) {
          batch.set("hint", torch::one_hot(batch.target(), 10).to(at::kFloat));
        };
      },
      ChangedSplits::train_and_val);
  registry.models.push_back({.name = "hinted", .help = "", .keys = {}, .make = [](const Section&, const Task&) {
                               return std::shared_ptr<models::Model>(std::make_shared<Hinted>());
                             }});
  return registry;
}

const Settings kHinted = with(kTwelveSteps, {{"data.name", "hints"}, {"model.name", "hinted"}, {"optim.lr", "0.1"}});

TEST(StepsTest, SeveralInputsReachEveryStepAndTheEvaluation) {
  const Registry registry = registry_with_hints();
  const Trained model = trained(kHinted, registry);
  EXPECT_LT(model.losses.back(), model.losses.front());
  for (const char* step : {"simple", "amp", "standard"}) {
    SCOPED_TRACE(step);
    expect_same_bits(model, trained(with(kHinted, {{"train.step_kind", step}}), registry));
  }
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, kHinted, registry);
  run.trainer.train();
  EXPECT_EQ(evaluate(run, *run.splits.val, 16).accuracy(), 1.0);
  const batch::Batch batch = run.splits.val->get(testing::draws_of({2, 0, 1}));
  EXPECT_TRUE(at::equal(run.model.wrapper->test_step(batch).tensor("classes"), batch.target()));
}

// Models of one input do not look at the others.
TEST(StepsTest, KeysChooseTheInputAndTheTarget) {
  for (const char* step : {"model", "standard"}) {
    const Settings settings = with(kTwelveSteps, {{"train.step_kind", step}});
    const Trained plain = trained(settings);
    expect_same_bits(plain, trained(with(settings, {{"data.name", "hints"}}), registry_with_hints()));
    EXPECT_THROW(trained(with(settings, {{"data.input_keys", "picture"}})), ConfigError);
    EXPECT_THROW(trained(with(settings, {{"data.target_keys", "class"}})), ConfigError);
    EXPECT_THROW(trained(with(settings, {{"data.input_keys", "data,data"}})), ConfigError);
  }
}

// Only a run that was resumed at another place than its sampler comes there.
TEST(StepsTest, AStepRefusesToTrainPastTheEnd) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"train.step_kind", "standard"}}));
  const ManualStep step = make_step(run.sections.at("train"), builtin_steps()).run;
  const batch::Batch batch = run.splits.train->get(testing::draws_of({0, 1}));
  StepContext context{.wrapper = *run.model.wrapper,
                      .optimizer = run.updates.first(),
                      .parts = run.updates.parts,
                      .batch = batch,
                      .where = 1,
                      .notify = [](StepEvent, const LastBatch&) {}};
  try {
    step(context);
    FAIL() << "trained";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("after the end of the training"), std::string::npos) << error.what();
  }
}

// The standard step wants a loss of that name; the penalty is only logged.
TEST(StepsTest, TheStandardStepTrainsTheLossCalledSo) {
  EXPECT_THROW(trained(with(kTwoLosses, {{"train.step_kind", "standard"}}), registry_with_two_losses()), ConfigError);
}

// training-loop.md 18: each section is timed once a step, those of a step within its whole.
TEST(StepsTest, SectionsAreTimed) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const Settings& more : {Settings{{"train.step_kind", "standard"}}, Settings{{"log.sections", "true"}},
                               Settings{{"log.sections", "true"}, {"train.step_kind", "simple"}}}) {
    SmallRun run(world, with(kTwelveSteps, more));
    run.trainer.train();
    ASSERT_NE(run.trainer.view().perf, nullptr);
    double parts = 0;
    for (const char* name :
         {"read_sample", "forward", "loss_compute", "backward", "optimizer_step", "loss_all_reduce"}) {
      const PerfMetric& times = run.trainer.view().perf->sections().at(name).host_ms;
      EXPECT_EQ(times.count(), 12) << name;
      parts += times.sum();
    }
    EXPECT_LE(parts, run.trainer.view().perf->sections().at("train_step_total").host_ms.sum());
  }
  SmallRun silent(world, kTwelveSteps);
  EXPECT_EQ(silent.trainer.view().perf, nullptr);
}

// The share of all samples of an epoch, whoever trained on them: with an answer that never changes, the share of that
// class.
TEST(StepsTest, MetersCountWhileTraining) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"train.max_steps", "0"},
                                          {"train.max_epochs", "2"},
                                          {"data.train_size", "48"},
                                          {"train.metrics", "top_k,k=1"},
                                          {"optim.lr", "0"}}));
  std::vector<Record> records;
  run.trainer.add_reporter([&](const Record& record) { records.push_back(record); });
  run.trainer.add_hook(train_meters_hook(cited_texts(run.sections.at("train"), "metrics")));
  run.trainer.train();
  const EvaluationResult sums = evaluate(run, *run.splits.train, 48);
  if (!world.is_root()) return;
  ASSERT_EQ(records.size(), 2U);
  for (const Record& record : records) {
    EXPECT_EQ(record.kind, "epoch");
    EXPECT_EQ(std::get<std::int64_t>(record.values[2].second), 48);
    EXPECT_DOUBLE_EQ(std::get<double>(record.values[3].second), sums.accuracy()) << record.values[3].first;
  }
}

/// Reads every gradient between backward and update.
class GradientHook : public Hook {
 public:
  explicit GradientHook(std::vector<double>& norms) : Hook({.gradients = true}), norms_(&norms) {}
  void on_backward(RunView& view, const LastBatch&) override {
    double squares = 0;
    for (const at::Tensor& parameter : view.wrapper.model().parameters()) {
      squares += parameter.grad().to(at::kDouble).square().sum().item<double>();
    }
    norms_->push_back(std::sqrt(squares));
  }

 private:
  std::vector<double>* norms_;
};

// Whole gradients on every rank: their norm is that which clipping finds, and reading them changes nothing.
TEST(StepsTest, GradientsCanBeReadBetweenBackwardAndUpdate) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings settings = with(kTwelveSteps, {{"train.clip_norm", "0.5"}});
  const Trained plain = trained(settings);
  for (const char* step : {"model", "simple"}) {
    SmallRun run(world, with(settings, {{"train.step_kind", step}}));
    std::vector<double> norms;
    run.trainer.add_hook(Priority::normal, std::make_unique<GradientHook>(norms));
    run.trainer.train();
    EXPECT_EQ(run.losses, plain.losses);
    ASSERT_EQ(norms.size(), run.norms.size());
    for (std::size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(norms[i], run.norms[i], 1e-5 * norms[i]);
  }
}

class SleepyHook : public Hook {
 public:
  void before_step(RunView& view) override { view.wrapper.model().eval(); }
};

TEST(StepsTest, AModelThatSleepsIsAMistakeOfTheProgram) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"train.step_kind", "simple"}}));
  run.trainer.add_hook(Priority::normal, std::make_unique<SleepyHook>());
  EXPECT_THROW(run.trainer.train(), std::logic_error);
}

// ---- ranges for NVIDIA's profilers

/// Takes the place of LibTorch's CUDA half.
class NotedRanges : public torch::profiler::impl::ProfilerStubs {
 public:
  using Event = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex*, Event*, std::int64_t*) const override {}
  float elapsed(const Event*, const Event*) const override { return 0; }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override {
    const std::lock_guard<std::mutex> hold(mutex_);
    names_.insert(name);
    ++open_;
  }
  void rangePop() const override { --open_; }
  bool enabled() const override { return is_enabled_; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}

  std::set<std::string> names() const { return names_; }
  int open() const { return open_; }
  void end() { is_enabled_ = false; }

 private:
  bool is_enabled_ = true;
  mutable std::mutex mutex_;
  mutable std::set<std::string> names_;
  mutable std::atomic<int> open_ = 0;
};

TEST(NvtxTest, PartsOfStepsAreNamed) {
  const mpi::Communicator world = mpi::Communicator::world();
  static NotedRanges ranges;  // LibTorch keeps the address
  const Settings small = with(kTwelveSteps, {{"data.workers", "0"}, {"ddp.shared_parameters", "false"}});
  trained(small);
  EXPECT_TRUE(ranges.names().empty());
  torch::profiler::impl::registerCUDAMethods(&ranges);
  batch::enable_nvtx_ranges();
  trained(small);
  std::set<std::string> expected = {"load", "forward", "backward", "update"};
  if (world.size() > 1) expected.insert("bucket 0");
  for (const std::string& name : expected) EXPECT_TRUE(ranges.names().contains(name)) << name;
  EXPECT_EQ(ranges.open(), 0);
  ranges.end();
  batch::enable_nvtx_ranges();
}

}  // namespace steps_test
}  // namespace lockstep::engine
