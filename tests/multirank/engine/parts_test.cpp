// SPDX-License-Identifier: BSD-3-Clause
// Parts of the parameters with optimizers of their own: optim.part, sched.rule with part, strategy.separate.
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <map>

#include "parallel/store/parameter_store.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace parts_test {

using checkpoints::Archive;

const Settings kTwoParts =
    with(kTwelveSteps, {{"optim.part", "front,names=hidden0"}, {"optim.part", "back,names=head"}});

struct Trained {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;
};

std::map<std::string, at::Tensor> parameters_of(SmallRun& run) {
  std::map<std::string, at::Tensor> values;
  run.model.wrapper->store().read_whole([&] {
    for (const auto& item : run.model.wrapper->model().named_parameters()) {
      values[item.key()] = item.value().detach().clone();
    }
  });
  for (const auto& item : run.model.wrapper->model().named_buffers()) values[item.key()] = item.value().clone();
  return values;
}

Trained result_of(SmallRun& run) { return {.losses = run.losses, .parameters = parameters_of(run)}; }

Trained trained(const Settings& settings, const Registry& registry = builtin_registry()) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, settings, registry);
  run.trainer.train();
  return result_of(run);
}

void expect_same_values(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) EXPECT_TRUE(at::equal(values, b.at(name))) << name;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  expect_same_values(a.parameters, b.parameters);
}

std::string refusal_of(const Settings& settings, const Registry& registry = builtin_registry()) {
  try {
    trained(settings, registry);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

void expect_refused(const std::string& because, const Settings& settings,
                    const Registry& registry = builtin_registry()) {
  const std::string text = refusal_of(settings, registry);
  EXPECT_NE(text.find(because), std::string::npos) << text;
}

/// The mean of the squared outputs trains one child, and then that of the outputs to the power of four the other.
parallel::StepResult train_in_turn(StepContext& step) {
  const auto frame = step.wrapper.micro_batch(step.optimizer, step.reads_gradients);
  const batch::Batch prepared = step.wrapper.prepare(step.batch, /*is_training=*/true);
  parallel::StepResult result;
  for (const char* name : {"front", "back"}) {
    optim::OptimWrapper& optimizer = step.parts.at(name);
    at::Tensor loss;
    {
      const auto context = step.wrapper.optim_context(optimizer);
      const at::Tensor output =
          step.wrapper.run([&] { return models::run(step.wrapper.model(), prepared); }).main().to(at::kFloat);
      loss = output.square().mean();
      if (std::string(name) == "back") loss = output.square().square().mean();
    }
    result.update = optimizer.update_params(loss, step.weights.of_total());
    result.loss += loss.item<double>();
    result.values.emplace_back("loss_" + std::string(name), loss.item<double>());
  }
  return result;
}

Registry registry_in_turn() {
  Registry registry;
  registry.steps.push_back({.name = "in_turn",
                            .help = "",
                            .keys = {},
                            .make = [](const Section&) { return ManualStep(train_in_turn); },
                            .parts = {"front", "back"}});
  return registry;
}

const Settings kInTurn = with(kTwoParts, {{"train.step_kind", "in_turn"}, {"optim.name", "sgd"}, {"optim.lr", "0.1"}});

// One loss trains all parts as it trains all parameters.
TEST(PartsTest, PartsWithEqualOptimizersAreOneOptimizer) {
  const std::string share = std::to_string((12 / mpi::Communicator::world().size() + 1) / 2);
  for (const Settings& more : {Settings{},
                               {{"train.micro_batch", share}},
                               {{"train.lanes", "12"}},
                               {{"train.step_kind", "standard"}},
                               {{"train.step_kind", "amp"}, {"train.precision", "fp16"}, {"train.init_scale", "64"}},
                               {{"ddp.shared_parameters", "true"}},
                               {{"ddp.shared_parameters", "true"}, {"optim.name", "muon"}},
                               {{"ddp.comm_hook", "bf16"}},
                               {{"strategy.name", "sharded"}, {"strategy.stage", "1"}},
                               {{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
                               {{"strategy.name", "sharded"}, {"strategy.stage", "3"}},
                               {{"strategy.name", "sharded"}, {"optim.name", "muon"}},
                               {{"sched.rule", "cosine"}}}) {
    if (mpi::Communicator::world().size() == 1 && more.size() > 0 && more[0].first == "ddp.shared_parameters") continue;
    SCOPED_TRACE(more.empty() ? "" : more.front().first + "=" + more.front().second);
    const Trained whole = trained(with(kTwelveSteps, more));
    expect_same_bits(whole, trained(with(kTwoParts, more)));
  }
}

TEST(PartsTest, SeparateChildrenAreOneOptimizerToo) {
  const Trained whole = trained(kTwelveSteps);
  expect_same_bits(whole, trained(with(kTwelveSteps, {{"strategy.separate", "true"}})));
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwelveSteps, {{"strategy.separate", "true"},
                                          {"optim.part", "head,name=sgd,lr=0"},
                                          {"strategy.name", "sharded"},
                                          {"strategy.stage", "1"}}));
  const std::map<std::string, at::Tensor> before = parameters_of(run);
  run.trainer.train();
  const std::map<std::string, at::Tensor> after = parameters_of(run);
  EXPECT_EQ(run.updates.parts.size(), 2U);
  EXPECT_TRUE(at::equal(before.at("head.weight"), after.at("head.weight")));
  EXPECT_FALSE(at::equal(before.at("hidden0.weight"), after.at("hidden0.weight")));
}

// Each part moves as in a run with its optimizer for all parameters in the first step.
TEST(PartsTest, EachPartHasItsRule) {
  const Settings one_step = with(kTwelveSteps, {{"train.max_steps", "1"}});
  const Trained sgd = trained(with(one_step, {{"optim.name", "sgd"}, {"optim.lr", "0.5"}}));
  const Trained adamw = trained(one_step);
  const Trained both = trained(
      with(one_step, {{"optim.part", "front,names=hidden0,name=sgd,lr=0.5"}, {"optim.part", "rest,names=rest"}}));
  for (const char* name : {"hidden0.weight", "hidden0.bias"}) {
    EXPECT_TRUE(at::equal(both.parameters.at(name), sgd.parameters.at(name))) << name;
  }
  for (const char* name : {"head.weight", "head.bias"}) {
    EXPECT_TRUE(at::equal(both.parameters.at(name), adamw.parameters.at(name))) << name;
  }
}

// Options of a part are those of parameter groups.
TEST(PartsTest, OptionsAreThoseOfGroups) {
  const Trained groups = trained(with(kTwelveSteps, {{"optim.paramwise", "custom:hidden0,lr=0.1,weight_decay=0.3"}}));
  expect_same_bits(
      groups, trained(with(kTwelveSteps, {{"optim.part", "hidden0,lr=0.1,weight_decay=0.3"}, {"optim.part", "head"}})));
}

TEST(PartsTest, ARuleOfTheScheduleCanBeOfOnePart) {
  const Settings frozen = {{"sched.rule", "constant,part=front,factor=0"}};
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwoParts, frozen));
  const std::map<std::string, at::Tensor> before = parameters_of(run);
  run.trainer.train();
  const std::map<std::string, at::Tensor> after = parameters_of(run);
  EXPECT_EQ(run.updates.parts.at("front").values("lr"), std::vector<double>{0});
  EXPECT_EQ(run.updates.parts.at("back").values("lr"), std::vector<double>{0.01});
  EXPECT_TRUE(at::equal(before.at("hidden0.weight"), after.at("hidden0.weight")));
  EXPECT_FALSE(at::equal(before.at("head.weight"), after.at("head.weight")));
}

// Computed by hand: two optimizers of torch's rule p -= lr * gradient, over the global batch.
TEST(PartsTest, StepsInTurnAreTwoOptimizersByHand) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Registry registry = registry_in_turn();
  SmallRun run(world, kInTurn, registry);
  const auto model =
      models::build(run.sections.at("model"), run.splits.train->task(), run.resources.draws.seed, at::kFloat);
  run.trainer.train();
  const data::Sampler& sampler = run.trainer.view().data.sampler();
  for (std::int64_t step = 0; step < 12; ++step) {
    const auto draws =
        sampler.draws(step / sampler.steps_per_epoch(), step % sampler.steps_per_epoch(), data::share_of(12, 0, 1));
    const batch::Batch batch = run.splits.train->get(draws);
    for (const char* child : {"hidden0", "head"}) {
      model->zero_grad();
      const at::Tensor output = models::run(*model, batch).main();
      const at::Tensor square = output.square();
      (std::string(child) == "hidden0" ? square : square.square()).mean().backward();
      const torch::NoGradGuard no_grad;
      for (const auto& item : model->named_parameters()) {
        if (item.key().starts_with(child)) item.value().sub_(item.value().grad(), 0.1);
      }
    }
  }
  const std::map<std::string, at::Tensor> values = parameters_of(run);
  for (const auto& item : model->named_parameters()) {
    // float32 sums over 12 samples, in another order: a few roundings in each of 12 steps.
    EXPECT_TRUE(at::allclose(values.at(item.key()), item.value(), 1e-4, 1e-6)) << item.key();
  }
}

void expect_same_optimizers(SmallRun& run, SmallRun& expected) {
  for (auto& [name, optimizer] : run.updates.parts) {
    optim::OptimWrapper& other = expected.updates.parts.at(name);
    EXPECT_EQ(optimizer.optimizer().steps(0)[0], other.optimizer().steps(0)[0]) << name;
    EXPECT_EQ(optimizer.scaler() == nullptr, other.scaler() == nullptr);
    if (optimizer.scaler() == nullptr) continue;
    EXPECT_EQ(optimizer.scaler()->scale(), other.scaler()->scale()) << name;
    EXPECT_EQ(optimizer.scaler()->state().growth_tracker, other.scaler()->state().growth_tracker) << name;
  }
}

/// A run of twelve steps that is saved after five, and what continues from there.
/// @return  the checkpoint
Archive expect_continues(const Settings& settings, const Registry& registry) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun whole(world, settings, registry);
  whole.trainer.train();
  SmallRun first(world, with(settings, {{"train.max_steps", "5"}}), registry);
  first.trainer.train();
  const Archive archive = capture(first.trainer, "", true);
  SmallRun second(world, settings, registry);
  restore(second.trainer, archive);
  expect_same_values(parameters_of(second), parameters_of(first));
  expect_same_optimizers(second, first);
  second.trainer.train();
  EXPECT_EQ(second.losses, std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
  expect_same_values(parameters_of(second), parameters_of(whole));
  expect_same_optimizers(second, whole);
  return archive;
}

// The state of every part is in the checkpoint.
TEST(PartsTest, ARunContinuesBitForBit) {
  const Registry registry = registry_in_turn();
  const Settings rules = {{"sched.rule", "cosine,part=front,end=12"},
                          {"optim.part", "front,names=hidden0,name=rmsprop"},
                          {"optim.part", "back,names=head,name=adam,lr=0.02"}};
  for (const Settings& more :
       {Settings{},
        {{"train.step_kind", "in_turn"}},
        {{"train.step_kind", "in_turn"}, {"train.precision", "fp16"}},
        {{"strategy.separate", "true"}},
        {{"train.lanes", "12"}},
        {{"ema.kind", "ema"}, {"ema.names", "head"}},
        {{"strategy.name", "sharded"}, {"ema.kind", "ema"}, {"ema.names", "head"}},
        {{"strategy.name", "sharded"}, {"strategy.stage", "1"}, {"train.step_kind", "in_turn"}}}) {
    SCOPED_TRACE(more.empty() ? "" : more.back().first + "=" + more.back().second);
    const Archive archive = expect_continues(with(with(kTwelveSteps, rules), more), registry);
    EXPECT_EQ(archive.groups_in("/optim"), (std::vector<std::string>{"back", "front"}));
    EXPECT_EQ(archive.text("/optim/front", "type"), "rmsprop");
    EXPECT_EQ(checkpoints::text_of(archive.array("/optim/front/param_names")), "hidden0.weight\nhidden0.bias\n");
  }
}

/// Two layers that are trained, and one that rests; each rank begins with values of its own.
class Children : public models::Model {
 public:
  explicit Children(std::int64_t width) {
    front = register_module("front", std::make_shared<models::Linear>(28 * 28, width));
    back = register_module("back", std::make_shared<models::Linear>(width, 10));
    resting = register_module("resting", std::make_shared<models::Linear>(2, 2));
    for (auto& parameter : resting->parameters()) parameter.set_requires_grad(false);
    const int rank = mpi::Communicator::world().rank();
    count = resting->register_buffer("count", torch::full({1}, 100 * rank, at::kLong));
    resting->weight.set_data(at::full({2, 2}, 1.5 + rank));
  }
  at::Tensor forward(const at::Tensor& input) override {
    if (is_training()) count += 1;
    return models::run(*back, at::tanh(models::run(*front, input.flatten(1))));
  }

  std::shared_ptr<models::Linear> front;
  std::shared_ptr<models::Linear> back;
  std::shared_ptr<models::Linear> resting;
  at::Tensor count;
};

Registry registry_with(const std::function<std::shared_ptr<models::Model>()>& make) {
  Registry registry = registry_in_turn();
  registry.models.push_back(
      {.name = "own", .help = "", .keys = {}, .make = [make](const Section&, const Task&) { return make(); }});
  return registry;
}

Registry registry_of_children(std::int64_t width = 8) {
  return registry_with([width] { return std::make_shared<Children>(width); });
}

const Settings kChildren = with(kTwelveSteps, {{"model.name", "own"}, {"strategy.separate", "true"}});

// Optimizers of every kind: states of other shapes than the parameters (adafactor), rules of whole parameters (muon),
// and states of other types (bf16).
TEST(PartsTest, SeparateChildrenContinueBitForBit) {
  const Registry registry = registry_of_children();
  const Settings half = {{"train.precision", "bf16"}, {"train.param_dtype", "bf16"}};
  for (const Settings& more : {Settings{{"optim.part", "back,name=sgd,momentum=0.9"}},
                               {{"ddp.shared_parameters", "true"}},
                               {{"optim.part", "front,name=adafactor"}},
                               {{"ddp.shared_parameters", "true"}, {"optim.part", "front,name=muon"}},
                               half,
                               with({{"ddp.shared_parameters", "true"}, {"optim.part", "front,name=adagrad"}}, half),
                               {{"train.precision", "fp16"},
                                {"train.init_scale", "8"},
                                {"train.growth_interval", "2"},
                                {"optim.part", "back,name=sgd,momentum=0.9"}}}) {
    if (mpi::Communicator::world().size() == 1 && more[0].first == "ddp.shared_parameters") continue;
    SCOPED_TRACE(more[0].first + "=" + more[0].second);
    for (const char* step : {"in_turn", "model"}) {
      const Archive archive = expect_continues(with(with(kChildren, more), {{"train.step_kind", step}}), registry);
      EXPECT_EQ(archive.groups_in("/optim"), (std::vector<std::string>{"back", "front"}));
    }
  }
}

// The child without trained parameters has the values of rank 0 everywhere, and no optimizer.
TEST(PartsTest, AChildThatIsNotTrainedIsOnlyBroadcast) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Registry registry = registry_of_children();
  SmallRun run(world, kChildren, registry);
  const auto& model = dynamic_cast<const Children&>(run.model.wrapper->model());
  EXPECT_EQ(run.updates.parts.size(), 2U);
  EXPECT_EQ(model.count.item<std::int64_t>(), 0);
  run.trainer.train();
  EXPECT_EQ(model.count.item<std::int64_t>(), 12);
  EXPECT_TRUE(at::equal(model.resting->weight, at::full({2, 2}, 1.5)));
}

struct OtherRun {
  Settings settings;
  Registry registry = registry_in_turn();
};

/// The reason why another run does not resume. It is the same on every rank, and nothing changes.
std::string mismatch_of(const OtherRun& saved, const OtherRun& resumed) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun first(world, saved.settings, saved.registry);
  first.trainer.train();
  const Archive archive = capture(first.trainer, "", true);
  SmallRun second(world, resumed.settings, resumed.registry);
  const std::map<std::string, at::Tensor> before = parameters_of(second);
  try {
    restore(second.trainer, archive);
  } catch (const CheckpointError& error) {
    EXPECT_TRUE(error.is_agreed());
    expect_same_values(parameters_of(second), before);
    return error.what();
  }
  ADD_FAILURE() << "resumed";
  return "";
}

void expect_resumes_without_optimizers(const Settings& saved, const Settings& resumed) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun first(world, saved);
  first.trainer.train();
  const Archive archive = capture(first.trainer, "", true);
  SmallRun second(world, resumed);
  EXPECT_NO_THROW(restore(second.trainer, archive, {.resets_optim = true}));
}

TEST(PartsTest, OtherPartsAreRefusedWhenARunResumes) {
  const Settings others =
      with(kTwelveSteps, {{"optim.part", "front,names=hidden0"}, {"optim.part", "head,names=head"}});
  const auto expect_mismatch = [](const Settings& saved, const Settings& resumed, const std::string& reason) {
    const std::string text = mismatch_of({saved}, {resumed});
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    expect_resumes_without_optimizers(saved, resumed);
  };
  expect_mismatch(kTwoParts, others, "has the parts back, front, the run's has the parts front, head");
  expect_mismatch(kTwoParts, kTwelveSteps, "has the parts back, front, the run's has no parts");
  expect_mismatch(kTwelveSteps, kTwoParts, "has no parts, the run's has the parts back, front");
  expect_mismatch(kTwoParts, with(kTwoParts, {{"optim.name", "adam"}}),
                  "its optimizer front is adamw, the run's is adam");
}

TEST(PartsTest, ChildrenOfOtherShapesAreRefusedWhenARunResumes) {
  const std::string text = mismatch_of({kChildren, registry_of_children()}, {kChildren, registry_of_children(9)});
  EXPECT_NE(text.find("/model/params/front.weight is float32 [8, 784], the run has float32 [9, 784]"),
            std::string::npos)
      << text;
}

TEST(PartsTest, ModelsThatDoNotConsistOfSeparateChildrenAreRefused) {
  expect_refused("parameter 'scale' belongs to none of the parts", kChildren, registry_with([] {
                   auto model = std::make_shared<Children>(8);
                   model->register_parameter("scale", torch::ones({1}));
                   return model;
                 }));
  expect_refused("is the same parameter as 'front.weight', but belongs to another part", kChildren, registry_with([] {
                   auto model = std::make_shared<Children>(8);
                   model->register_module("tied", model->front);
                   return model;
                 }));
  expect_refused("there is nothing to train", kChildren, registry_with([] {
                   auto model = std::make_shared<Children>(8);
                   for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
                   return model;
                 }));
}

TEST(PartsTest, WhatCannotBeTrainedIsRefused) {
  const auto parts = [](const std::string& one, const std::string& other) {
    return with(kTwelveSteps, {{"optim.part", one}, {"optim.part", other}});
  };
  expect_refused("parameter 'head.weight' belongs to none of the parts (a, b)",
                 parts("a,names=hidden0.weight", "b,names=hidden0.bias"));
  expect_refused("parameter 'hidden0.bias' belongs to two parts, a and b",
                 parts("a,names=hidden*,head", "b,names=hidden0.bias"));
  expect_refused("part b has no trained parameter", parts("a,names=hidden0,head", "b,names=tail"));
  expect_refused("two parts are named hidden0", parts("hidden0", "hidden0"));
  expect_refused("'7' is not the name of a part", parts("7,names=hidden0", "head"));
  expect_refused("learning_rate", parts("hidden0,learning_rate=1", "head"));
  expect_refused("lbfgs cannot update a part", parts("hidden0,name=lbfgs", "head"));
  expect_refused("part 'tail' is unknown; choose one of: back, front",
                 with(kTwoParts, {{"sched.rule", "cosine,part=tail"}}));
  expect_refused("part=front requires parts", with(kTwelveSteps, {{"sched.rule", "cosine,part=front"}}));
  expect_refused("updates the parts front, back, but the configuration has none",
                 with(kTwelveSteps, {{"train.step_kind", "in_turn"}}), registry_in_turn());
  for (const Settings& more : {Settings{{"train.lanes", "12"}},
                               {{"strategy.name", "sharded"}, {"strategy.stage", "2"}},
                               {{"ddp.comm_hook", "bf16"}},
                               {{"strategy.post_local", "4:all"}}}) {
    expect_refused("cannot be combined with parts that are reduced separately", with(kInTurn, more),
                   registry_in_turn());
    expect_refused("cannot be combined with parts that are reduced separately",
                   with(kTwelveSteps, with(more, {{"strategy.separate", "true"}})));
  }
  expect_refused("no trained parameter has the name tail",
                 with(kTwelveSteps, {{"ema.kind", "ema"}, {"ema.names", "tail"}}));
}

// The part that is not averaged is that of the trained model.
TEST(PartsTest, TheAverageCanBeOfOnePart) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, with(kTwoParts, {{"ema.kind", "ema"}, {"ema.decay", "0.5"}, {"ema.names", "head"}}));
  run.trainer.add_hook(average_hook(EmaSettings::from(run.sections.at("ema"))));
  run.trainer.train();
  const std::map<std::string, at::Tensor> trained = parameters_of(run);
  run.updates.average->swap();
  const std::map<std::string, at::Tensor> averaged = parameters_of(run);
  EXPECT_TRUE(at::equal(trained.at("hidden0.weight"), averaged.at("hidden0.weight")));
  EXPECT_FALSE(at::equal(trained.at("head.weight"), averaged.at("head.weight")));
}

}  // namespace parts_test
}  // namespace lockstep::engine
