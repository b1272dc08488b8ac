// SPDX-License-Identifier: BSD-3-Clause
// Steps, predictions and checkpoints of sessions.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "sessions.hpp"
#include "support/sampling.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace session_test {

using testing::parameters_of;
using testing::samples;
using testing::small_settings;

/// Ranks have different numbers of samples; of several, the first has none.
std::int64_t count_of(int rank, int ranks) { return ranks == 1 ? 4 : 2 * rank; }

std::int64_t begin_of(int rank, int ranks) {
  std::int64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += count_of(r, ranks);
  return begin;
}

SampleTensors samples_of(int rank, int ranks, std::int64_t step) {
  return samples(100 * step + begin_of(rank, ranks), count_of(rank, ranks));
}

TEST(SessionTest, AStepFollowsTheGradientOfAllSamples) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings());
  ASSERT_EQ(session.parameter_names().size(), 4U);
  EXPECT_EQ(session.parameter_count(), 3 * 5 + 5 + 5 * 2 + 2);
  std::vector<at::Tensor> expected;
  for (const std::string& name : session.parameter_names()) {
    expected.push_back(session.parameter(name).to(at::kDouble).set_requires_grad(true));
  }
  for (std::int64_t step = 0; step < 5; ++step) {
    const SampleTensors all = samples(100 * step, begin_of(world.size(), world.size()));
    const at::Tensor input = all[0].second.to(at::kDouble);
    const at::Tensor hidden = at::tanh(at::linear(input, expected[0], expected[1]));
    const at::Tensor loss = at::mse_loss(at::linear(hidden, expected[2], expected[3]), all[1].second.to(at::kDouble));
    for (at::Tensor& parameter : expected) parameter.mutable_grad() = at::Tensor();
    loss.backward();
    EXPECT_NEAR(session.train(samples_of(world.rank(), world.size(), step)), loss.item<double>(), 1e-6);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : expected) parameter.sub_(0.1 * parameter.grad());
  }
  EXPECT_EQ(session.step(), 5);
  std::size_t i = 0;
  for (const std::string& name : session.parameter_names()) {
    const double error = (session.parameter(name).to(at::kDouble) - expected[i++]).abs().max().item<double>();
    EXPECT_LT(error, 1e-6) << name;
  }
  session.close();
}

TEST(SessionTest, RanksWithoutSamplesMayPassNothing) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank has all samples";
  Session with_arrays(MPI_COMM_WORLD, small_settings());
  Session without(MPI_COMM_WORLD, small_settings());
  const SampleTensors mine = samples_of(world.rank(), world.size(), 0);
  with_arrays.train(mine);
  without.train(world.is_root() ? SampleTensors{} : mine);
  testing::expect_same_bits(parameters_of(with_arrays), parameters_of(without));
}

TEST(SessionTest, PredictionsAreThoseOfTheWeightsOfTheLatestStep) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings());
  const at::Tensor input = samples(7, 6)[0].second;
  const std::int64_t steps = testing::is_long_run() ? 10000 : 2000;
  for (std::int64_t step = 0; step < steps; ++step) {
    session.train(samples_of(world.rank(), world.size(), step));
    // Every rank predicts at once; nobody may still be writing what it reads.
    const at::Tensor output = session.predict({{"input", input}}).front().second.contiguous();
    const at::Tensor hidden =
        at::tanh(at::linear(input, session.parameter("hidden0.weight"), session.parameter("hidden0.bias")));
    const std::vector<std::string> names = session.parameter_names();
    const at::Tensor expected = at::linear(hidden, session.parameter(names[2]), session.parameter(names[3]));
    ASSERT_TRUE(at::allclose(output, expected, 1e-6, 1e-6)) << "step " << step;
    const std::span<const float> mine(output.const_data_ptr<float>(), static_cast<std::size_t>(output.numel()));
    std::vector<float> of_root(mine.begin(), mine.end());
    world.broadcast(std::span(of_root));
    ASSERT_TRUE(std::equal(mine.begin(), mine.end(), of_root.begin())) << "step " << step;
  }
}

TEST(SessionTest, PredictionsUseTheAverageOfTheLatestUpdate) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings({"ema.kind=ema", "ema.decay=0.5"}));
  const SampleTensors input = {samples(7, 6)[0]};
  EXPECT_NE(testing::sentence_of<ConfigError>([&] { session.predict(input); }).find("call update on all"),
            std::string::npos);
  std::vector<at::Tensor> average;
  for (std::int64_t step = 0; step < 4; ++step) {
    session.train(samples_of(world.rank(), world.size(), step));
    std::size_t i = 0;
    for (const std::string& name : session.parameter_names()) {
      const at::Tensor now = session.parameter(name).to(at::kDouble);
      if (step == 0) average.push_back(now);
      if (step > 0) average[i] = 0.5 * average[i] + 0.5 * now;
      ++i;
    }
  }
  session.update();
  const at::Tensor trained = parameters_of(session);
  const at::Tensor hidden = at::tanh(at::linear(input[0].second.to(at::kDouble), average[0], average[1]));
  const at::Tensor expected = at::linear(hidden, average[2], average[3]);
  const at::Tensor output = session.predict(input)[0].second;
  EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected, 1e-5, 1e-5));
  session.train(samples_of(world.rank(), world.size(), 4));
  testing::expect_same_bits(session.predict(input)[0].second, output);  // until the next update
  EXPECT_FALSE(at::equal(parameters_of(session), trained));
}

TEST(SessionTest, PredictionNeedsNoSamples) {
  Session session(MPI_COMM_NULL, small_settings());
  const SampleTensors none = session.predict({{"input", at::empty({0, 3})}});
  ASSERT_EQ(none.size(), 2U);
  EXPECT_EQ(none[0].first, "output");
  EXPECT_EQ(none[0].second.sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(none[1].first, "values");
}

TEST(SessionTest, StridesAndTypesOfArraysDoNotMatter) {
  Session plain(MPI_COMM_NULL, small_settings());
  Session other(MPI_COMM_NULL, small_settings());
  const SampleTensors given = samples(3, 8);
  plain.train(given);
  const at::Tensor columns = given[0].second.to(at::kDouble).t().contiguous().t();  // column-major
  const at::Tensor wide = at::zeros({8, 6});
  wide.slice(1, 0, 6, 3).copy_(given[1].second);
  other.train({{"input", columns}, {"target", wide.slice(1, 0, 6, 3)}});
  EXPECT_TRUE(at::allclose(parameters_of(plain), parameters_of(other), 1e-6, 1e-7));
}

TEST(SessionTest, MaskedElementsDoNotCount) {
  for (const bool has_space : {false, true}) {
    const testing::SessionSettings settings =
        has_space ? testing::SessionSettings{"model.name=unet",      "model.width=4",         "model.depth=1",
                                             "data.input_shape=1,8", "data.target_shape=1,8", "optim.name=sgd",
                                             "run.threads=1"}
                  : small_settings();
    const at::Tensor input = has_space ? at::sin(at::arange(16, at::kFloat)).view({2, 1, 8}) : samples(0, 2)[0].second;
    const at::Tensor target = has_space ? at::cos(at::arange(16, at::kFloat)).view({2, 1, 8}) : samples(0, 2)[1].second;
    at::Tensor mask = at::ones_like(target, at::kByte);
    mask[1].fill_(0);
    at::Tensor other = target.clone();
    other[1].fill_(1e6F);
    Session one(MPI_COMM_NULL, settings);
    Session two(MPI_COMM_NULL, settings);
    Session without(MPI_COMM_NULL, settings);
    const double loss = one.train({{"input", input}, {"target", target}, {"mask", mask}});
    EXPECT_EQ(two.train({{"input", input}, {"target", other}, {"mask", mask}}), loss);
    EXPECT_NE(without.train({{"input", input}, {"target", target}}), loss);
    testing::expect_same_bits(parameters_of(one), parameters_of(two));
  }
}

TEST(SessionTest, AnArrayOfAnyNameIsTheMask) {
  Session session(MPI_COMM_NULL, small_settings({"data.mask_key=valid"}));
  SampleTensors given = samples(0, 4);
  const at::Tensor error = session.predict({given[0]})[0].second - given[1].second;
  const at::Tensor valid = at::arange(8, at::kLong).view({4, 2}).remainder(3);
  given.emplace_back("valid", valid);
  const double expected = (error.square() * valid.ne(0)).sum().item<double>() / 5;
  EXPECT_NEAR(session.train(given), expected, 1e-6 * expected);
  given.emplace_back("mask", valid);
  EXPECT_EQ(testing::sentence_of<Error>([&] { session.train(given); }),
            "there are two arrays of the name 'mask', which is that of 'valid' for losses");
}

TEST(SessionTest, SamplesHaveWeights) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const bool uses_buffer : {false, true}) {
    Session session(MPI_COMM_WORLD, small_settings({"data.weight_key=area", "train.global_batch_size=48"}));
    SampleTensors given = samples(4 * world.rank(), 4);
    const SampleTensors all = samples(0, 4 * world.size());
    const at::Tensor weights = at::arange(4 * world.size(), at::kDouble) + 1;
    const at::Tensor error = session.predict({all[0]})[0].second - all[1].second;
    const double expected = ((weights * error.square().mean(1)).sum() / weights.sum()).item<double>();
    given.emplace_back("area", weights.narrow(0, 4 * world.rank(), 4));
    if (uses_buffer) session.push(given);
    const double loss = uses_buffer ? session.train_buffer(1) : session.train(given);
    EXPECT_NEAR(loss, expected, 1e-6 * expected) << uses_buffer;  // 48 is a multiple of the samples of each rank
  }
  Session session(MPI_COMM_WORLD, small_settings({"data.weight_key=area"}));
  EXPECT_EQ(testing::sentence_of<Error>([&] { session.train(samples(0, 4)); }),
            "the weight 'area' is missing; there are 'input', 'target'");
  SampleTensors wide = samples(0, 4);
  wide.emplace_back("area", at::ones({4, 2}));
  EXPECT_EQ(testing::sentence_of<Error>([&] { session.train(wide); }),
            "'area' has the shape [4, 2], but data.weight_key names one number per sample");
}

TEST(SessionTest, RanksWithoutWeightedSamplesAddNothing) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session together(MPI_COMM_WORLD, small_settings({"data.weight_key=area"}));
  Session alone(MPI_COMM_NULL, small_settings({"data.weight_key=area"}));
  SampleTensors given = samples(0, 4);
  given.emplace_back("area", at::tensor({1.0, 2.0, 0.0, 3.0}));
  const double loss = alone.train(given);
  EXPECT_NEAR(together.train(world.is_root() ? given : SampleTensors{}), loss, 1e-12);
  EXPECT_TRUE(at::allclose(parameters_of(together), parameters_of(alone), 1e-6, 1e-7));
}

TEST(SessionTest, SeveralArraysAreJoinedIntoTheInput) {
  Session joined(MPI_COMM_NULL, small_settings({"data.join_keys=speed,change"}));
  Session whole(MPI_COMM_NULL, small_settings());
  const SampleTensors given = samples(0, 4);
  const SampleTensors parts = {{"change", given[0].second.narrow(1, 2, 1).to(at::kDouble)},
                               {"speed", given[0].second.narrow(1, 0, 2)},
                               given[1]};
  EXPECT_EQ(joined.train(parts), whole.train(given));
  testing::expect_same_bits(parameters_of(joined), parameters_of(whole));
  testing::expect_same_bits(joined.predict({parts[0], parts[1]})[0].second, whole.predict({given[0]})[0].second);
  EXPECT_EQ(testing::sentence_of<Error>([&] { joined.train(given); }),
            "the input 'speed' is missing; there are 'input', 'target'");
  EXPECT_EQ(
      testing::sentence_of<Error>([&] {
        joined.train({{"speed", at::zeros({4, 2})}, {"change", at::zeros({4, 1, 7})}, given[1]});
      }),
      "'change' has samples of the shape [1, 7], which cannot be joined to [2] of 'speed'; all but the first size "
      "must be equal");
}

TEST(SessionTest, SessionsOnOverlappingCommunicatorsTakeTurns) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session all(MPI_COMM_WORLD, small_settings());
  const mpi::Communicator part = world.split(world.rank() == 0 ? 0 : 1);
  Session some(part.handle(), small_settings({"run.seed=2"}));
  Session alone_all(MPI_COMM_WORLD, small_settings());
  Session alone_some(part.handle(), small_settings({"run.seed=2"}));
  for (std::int64_t step = 0; step < 20; ++step) {
    all.train(samples_of(world.rank(), world.size(), step));
    some.train(samples(step, 3));
  }
  for (std::int64_t step = 0; step < 20; ++step) alone_all.train(samples_of(world.rank(), world.size(), step));
  for (std::int64_t step = 0; step < 20; ++step) alone_some.train(samples(step, 3));
  testing::expect_same_bits(parameters_of(all), parameters_of(alone_all));
  testing::expect_same_bits(parameters_of(some), parameters_of(alone_some));
  EXPECT_FALSE(at::equal(parameters_of(all), parameters_of(some)));
}

TEST(SessionTest, ClassesAreLearnedAndPredicted) {
  Session session(MPI_COMM_WORLD, {"model.name=mlp", "data.kind=classification", "data.input_shape=2", "data.classes=2",
                                   "optim.lr=0.05", "run.threads=1"});
  const at::Tensor input = at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 0.9F, 0.1F, 0.2F, 0.8F}).view({4, 2});
  const at::Tensor target = at::tensor({0, 1, 0, 1}, at::kInt);  // converted
  for (int step = 0; step < 60; ++step) session.train({{"input", input}, {"target", target}});
  for (const auto& [name, tensor] : session.predict({{"input", input}})) {
    if (name != "classes") continue;
    EXPECT_TRUE(at::equal(tensor, target.to(at::kLong)));
  }
}

TEST(SessionTest, ARunContinuesFromItsCheckpointBitForBit) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::SharedFolder folder(world);
  const testing::SessionSettings settings =
      small_settings({"run.dir=" + folder.path("run"), "optim.name=adamw", "log.every=2"});
  const auto train = [&](Session& session, std::int64_t begin, std::int64_t end) {
    for (std::int64_t step = begin; step < end; ++step) session.train(samples_of(world.rank(), world.size(), step));
  };
  at::Tensor expected;
  std::string checkpoint;
  {
    Session session(MPI_COMM_WORLD, settings);
    train(session, 0, 4);
    checkpoint = session.save();
    EXPECT_TRUE(std::filesystem::exists(checkpoint)) << checkpoint;
    session.metric("drag", 0.5);
    train(session, 4, 8);
    expected = parameters_of(session);
    session.resume("4");  // back, and on again
    EXPECT_EQ(session.step(), 4);
    train(session, 4, 8);
    testing::expect_same_bits(parameters_of(session), expected);
    session.close();
  }
  world.barrier();
  EXPECT_TRUE(std::filesystem::exists(folder.path("run/report.html")));
  testing::SessionSettings again = settings;
  again.push_back("resume=4");
  Session resumed(MPI_COMM_WORLD, again);
  EXPECT_EQ(resumed.step(), 4);
  train(resumed, 4, 8);
  testing::expect_same_bits(parameters_of(resumed), expected);
}

TEST(SessionTest, ARunThatOnlyPredictsTakesShapesAndWeightsFromAnotherRun) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::SharedFolder folder(world);
  Session session(MPI_COMM_WORLD, small_settings({"run.dir=" + folder.path("run")}));
  for (std::int64_t step = 0; step < 3; ++step) session.train(samples_of(world.rank(), world.size(), step));
  session.save();
  Session predicting(MPI_COMM_NULL, {"from=" + folder.path("run"), "purpose=predict"});
  const at::Tensor input = samples(0, 5)[0].second;
  testing::expect_same_bits(predicting.predict({{"input", input}})[0].second,
                            session.predict({{"input", input}})[0].second);
  EXPECT_EQ(predicting.step(), 3);
  Session tuned(MPI_COMM_WORLD, {"from=" + folder.path("run"), "optim.lr=0.01"});
  testing::expect_same_bits(parameters_of(tuned), parameters_of(session));
  EXPECT_EQ(tuned.step(), 0);
}

TEST(SessionTest, ParametersAreReplacedByThoseOfTheFirstRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings());
  session.set_parameter("hidden0.weight", at::full({5, 3}, 1.0 + world.rank(), at::kDouble));
  testing::expect_same_bits(session.parameter("hidden0.weight"), at::ones({5, 3}));
}

TEST(SessionTest, StepsBeyondTheLengthOfTheRunHaveTheLastLearningRate) {
  Session session(MPI_COMM_WORLD, small_settings({"sched.name=cosine", "train.max_steps=3"}));
  for (int step = 0; step < 3; ++step) session.train(samples(0, 4));
  const at::Tensor at_end = parameters_of(session);
  for (int step = 0; step < 4; ++step) session.train(samples(0, 4));
  EXPECT_EQ(session.step(), 7);
  testing::expect_same_bits(parameters_of(session), at_end);  // a cosine ends with 0
}

TEST(SessionTest, ThreadsOfTheProgramStayAsTheyAre) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  {
    Session session(MPI_COMM_NULL, small_settings());
    EXPECT_EQ(at::get_num_threads(), 2);
    session.train(samples(0, 4));
    session.predict({samples(0, 4)[0]});
    EXPECT_EQ(at::get_num_threads(), 2);
  }
  // A run that cannot be opened has chosen its threads already.
  EXPECT_THROW(Session(MPI_COMM_NULL, small_settings({"optim.paramwise=nothing"})), Error);
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
}

}  // namespace session_test
}  // namespace lockstep
