// SPDX-License-Identifier: BSD-3-Clause
// train.param_dtype=bf16: curves, checkpoints, averages and refusals.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/loaded_model.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/state/stored_model.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace param_dtype_test {

using checkpoints::Archive;

const Settings kMasters = {{"train.precision", "bf16"}, {"train.param_dtype", "bf16"}};
const Settings kNearest = with(kMasters, {{"train.master_weights", "false"}});
const Settings kStochastic = with(kNearest, {{"train.stochastic_rounding", "true"}});

Settings gpt(const char* steps) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return {{"data.name", "text"},
          {"data.path", std::string(source != nullptr ? source : ".") + "/checkpoints/FORMAT.md"},
          {"data.block", "32"},
          {"data.workers", "0"},
          {"model.name", "gpt"},
          {"model.depth", "2"},
          {"model.num_heads", "2"},
          {"model.embed_dim", "48"},
          {"optim.name", "adamw"},
          {"optim.lr", "0.003"},
          {"optim.no_decay", "norms_biases"},
          {"train.clip_norm", "1"},
          {"train.global_batch_size", "12"},
          {"train.max_steps", steps},
          {"run.threads", "1"}};
}

const Settings kResnet = {
    {"model.name", "resnet18"}, {"model.width", "8"},  {"data.train_size", "1000"},       {"data.workers", "0"},
    {"optim.lr", "0.05"},       {"optim.name", "sgd"}, {"train.global_batch_size", "48"}, {"train.max_steps", "40"},
    {"run.threads", "1"}};

/// The mean of the last ten steps.
double mean_of_end(const std::vector<double>& losses) {
  return std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
}

std::vector<at::Tensor> values_of(SmallRun& run) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& value : run.model.wrapper->model().parameters()) values.push_back(value.detach().clone());
  return values;
}

bool is_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool all = a.size() == b.size();
  for (std::size_t i = 0; all && i < a.size(); ++i) all = at::equal(a[i], b[i]);
  return all;
}

class ParamDtypeTest : public ::testing::Test {
 protected:
  ParamDtypeTest() : shared_(world_.broadcast(folder_.path())) {}
  ~ParamDtypeTest() override { world_.barrier(); }

  std::vector<double> losses_of(const Settings& settings) const {
    SmallRun run(world_, settings);
    run.trainer.train();
    return run.losses;
  }

  /// The state of `run`, written and read again on every rank.
  Archive through_a_file(SmallRun& run, const std::string& name) const { return checkpoints::read(file_of(run, name)); }
  /// Writes the state of `run`.
  std::string file_of(SmallRun& run, const std::string& name) const {
    const Archive archive = capture(run.trainer, "", world_.is_root());
    const std::string folder = shared_ + "/" + name;
    if (world_.is_root()) checkpoints::write(folder, run.trainer.progress().step, archive);
    world_.barrier();
    return checkpoints::checkpoint_of(folder, run.trainer.progress().step);
  }

  std::string refusal(const Settings& settings) const {
    try {
      SmallRun(world_, with(kTwelveSteps, settings));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
};

// A rounded run takes another way through so few steps, at each processor level and number of ranks. It must gain at
// least four fifths of what the exact run gains.
TEST_F(ParamDtypeTest, TrainsLikeFloat32) {
  for (const Settings& base : {gpt("60"), kResnet}) {
    const std::vector<double> exact = losses_of(base);
    const double gain = exact.front() - mean_of_end(exact);
    EXPECT_GT(gain, 0.05 * exact.front());  // it does train
    for (const Settings& settings : {kMasters, kStochastic}) {
      const std::vector<double> losses = losses_of(with(base, settings));
      EXPECT_NE(losses, exact);
      EXPECT_LT(mean_of_end(losses), mean_of_end(exact) + 0.2 * gain) << settings.back().first;
    }
  }
}

TEST_F(ParamDtypeTest, ArraysHaveTheirTypes) {
  SmallRun run(world_, with(with(kResnet, {{"train.max_steps", "2"}, {"optim.momentum", "0.9"}}), kMasters));
  run.trainer.train();
  const Archive archive = through_a_file(run, "types");
  EXPECT_EQ(archive.array("/model/params/conv1.weight").dtype, DType::bfloat16);
  EXPECT_EQ(archive.array("/model/params/fc.bias").dtype, DType::bfloat16);
  EXPECT_EQ(archive.array("/model/params/bn1.weight").dtype, DType::float32);
  EXPECT_EQ(archive.array("/model/buffers/bn1.running_mean").dtype, DType::float32);
  EXPECT_EQ(archive.array("/optim/0/state/master/conv1.weight").dtype, DType::float32);
  EXPECT_FALSE(archive.has("/optim/0/state/master/bn1.weight"));
  EXPECT_EQ(archive.array("/optim/0/state/momentum_buffer/conv1.weight").dtype, DType::float32);
  EXPECT_EQ(archive.text("/", "param_dtype"), "bf16 parameters with fp32 master weights");
  const at::Tensor master = tensor_over(archive.array("/optim/0/state/master/conv1.weight"));
  const at::Tensor parameter = tensor_over(archive.array("/model/params/conv1.weight"));
  EXPECT_TRUE(at::equal(master.to(at::kBFloat16), parameter));
  EXPECT_FALSE(at::equal(master, parameter.to(at::kFloat)));
  SmallRun without(world_, with(with(kResnet, {{"train.max_steps", "1"}}), kNearest));
  EXPECT_FALSE(through_a_file(without, "none").has("/optim/0/state/master/conv1.weight"));
}

TEST_F(ParamDtypeTest, ResumesBitForBit) {
  const Settings own = {{"strategy.name", "ddp"}, {"ddp.shared_parameters", "false"}};
  const auto stage = [](const char* number) {
    return Settings{{"strategy.name", "sharded"}, {"strategy.stage", number}};
  };
  const std::vector<Settings> cases = {kMasters,
                                       kStochastic,
                                       with(own, kStochastic),
                                       with(stage("1"), kMasters),
                                       with(stage("2"), kStochastic),
                                       with(stage("3"), kMasters),
                                       with(kMasters, {{"optim.name", "muon"}}),
                                       with(with(stage("3"), kStochastic), {{"optim.name", "adafactor"}}),
                                       with(with(stage("2"), kMasters), {{"optim.name", "lamb"}})};
  const auto resumes = [&](const Settings& settings, const std::string& name) {
    SCOPED_TRACE(name);
    SmallRun straight(world_, settings);
    straight.trainer.add_hook(average_hook(EmaSettings::from(straight.sections.at("ema"))));
    straight.trainer.train();
    SmallRun first(world_, with(settings, {{"train.max_steps", "3"}}));
    first.trainer.add_hook(average_hook(EmaSettings::from(first.sections.at("ema"))));
    first.trainer.train();
    const Archive archive = through_a_file(first, name);
    SmallRun resumed(world_, settings);
    resumed.trainer.add_hook(average_hook(EmaSettings::from(resumed.sections.at("ema"))));
    restore(resumed.trainer, archive);
    EXPECT_EQ(reproducibility_of(resumed.trainer, archive, {}).text(), "bitwise");
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses, std::vector<double>(straight.losses.begin() + 3, straight.losses.end()));
    EXPECT_EQ(testing::differences(through_a_file(resumed, name + "resumed"), through_a_file(straight, name + "all")),
              "");
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    resumes(with(with(gpt("6"), {{"ema.kind", "ema"}, {"ema.decay", "0.5"}}), cases[i]), std::to_string(i));
  }
}

// Who updates what differs, the sums of gradients do not.
TEST_F(ParamDtypeTest, StochasticRoundingHasTheBitsOfEveryDivisionOfTheWork) {
  const Settings base = with(gpt("6"), kStochastic);
  SmallRun shared(world_, with(base, {{"ddp.shared_parameters", "auto"}}));
  shared.trainer.train();
  SmallRun own(world_, with(base, {{"ddp.shared_parameters", "false"}}));
  own.trainer.train();
  EXPECT_EQ(own.losses, shared.losses);
  EXPECT_TRUE(is_equal(values_of(own), values_of(shared)));
  SmallRun other(world_, with(base, {{"run.seed", "7"}}));
  other.trainer.train();
  EXPECT_FALSE(is_equal(values_of(other), values_of(shared)));
}

TEST_F(ParamDtypeTest, AveragesAreFloat32AndEvaluated) {
  const Settings settings = with(with(gpt("5"), kMasters), {{"ema.kind", "swa"}, {"eval.batch_size", "8"}});
  SmallRun run(world_, settings);
  run.trainer.add_hook(average_hook(EmaSettings::from(run.sections.at("ema"))));
  run.trainer.train();
  const std::vector<at::Tensor> trained = values_of(run);
  double loss = 0;
  with_average(*run.model.wrapper, run.updates.average.get(), [&] {
    EXPECT_FALSE(is_equal(values_of(run), trained));
    loss = evaluate(run, *run.splits.val, 8).mean_loss();
  });
  EXPECT_TRUE(is_equal(values_of(run), trained));
  const std::string file = file_of(run, "averages");
  EXPECT_EQ(checkpoints::read(file).array("/ema/params/tokens.weight").dtype, DType::float32);
  LoadedModel loaded = load_model(world_, run.sections, builtin_registry(), file);
  const Evaluation found = evaluate_loaded(loaded, run.sections, builtin_registry());
  EXPECT_TRUE(found.is_average);
  EXPECT_NEAR(found.values.front().second, loss, 1e-6 * loss);
}

TEST_F(ParamDtypeTest, InitialValuesOfOtherTypesAreConverted) {
  SmallRun exact(world_, with(kTwelveSteps, {{"run.seed", "2"}}));
  SmallRun run(world_, with(with(kTwelveSteps, kMasters), {{"init.from", file_of(exact, "exact")}}));
  EXPECT_TRUE(init_from(run.resources.world, *run.model.wrapper, run.sections).empty());
  std::vector<at::Tensor> expected;
  for (const at::Tensor& value : values_of(exact)) expected.push_back(value.to(at::kBFloat16));
  EXPECT_TRUE(is_equal(values_of(run), expected));
  run.trainer.train();
  // And back.
  SmallRun wide(world_, with(kTwelveSteps, {{"init.from", file_of(run, "narrow")}}));
  EXPECT_TRUE(init_from(wide.resources.world, *wide.model.wrapper, wide.sections).empty());
  EXPECT_EQ(values_of(wide)[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(values_of(wide)[0].to(at::kBFloat16), values_of(run)[0]));
}

TEST_F(ParamDtypeTest, AnotherUpdateIsReported) {
  SmallRun first(world_, with(with(kTwelveSteps, kNearest), {{"train.max_steps", "3"}}));
  first.trainer.train();
  const Archive archive = through_a_file(first, "nearest");
  SmallRun other(world_, with(kTwelveSteps, kStochastic));
  restore(other.trainer, archive);
  EXPECT_EQ(reproducibility_of(other.trainer, archive, {}).text(),
            "statistical, because the run has bf16 parameters with stochastic rounding and was written with bf16 "
            "parameters");
  SmallRun exact(world_, kTwelveSteps);
  EXPECT_THROW(restore(exact.trainer, archive), CheckpointError);
}

TEST_F(ParamDtypeTest, WhatCannotWorkIsRefused) {
  const std::string begin = "train.param_dtype (test): bf16 cannot be combined with ";
  EXPECT_EQ(refusal({{"train.param_dtype", "bf16"}}),
            begin + "train.precision=fp32: products are computed in the type of the parameters; use bf16 for both");
  for (const char* const precision : {"fp64", "fp16", "tf32"}) {
    EXPECT_EQ(refusal(with(kMasters, {{"train.precision", precision}})).find(begin + "train.precision=" + precision),
              0U);
  }
  EXPECT_EQ(refusal(with(kMasters, {{"train.lanes", "4"}})),
            begin + "train.lanes: lanes are summed in float32 or float64");
  EXPECT_EQ(refusal(with(kMasters, {{"strategy.post_local", "2:all"}})).find(begin + "strategy.post_local"), 0U);
  EXPECT_EQ(refusal(with(kMasters, {{"optim.name", "lbfgs"}})).find(begin + "optim.name=lbfgs"), 0U);
  EXPECT_EQ(refusal({{"train.master_weights", "false"}}),
            "train.master_weights (test): false requires train.param_dtype=bf16");
  EXPECT_EQ(refusal(with(kMasters, {{"train.stochastic_rounding", "true"}})),
            "train.stochastic_rounding (test): true requires train.param_dtype=bf16 and train.master_weights=false");
  EXPECT_EQ(refusal(kStochastic), "");
}

}  // namespace param_dtype_test
}  // namespace lockstep::engine
