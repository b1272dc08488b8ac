// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/parallel/join.hpp>

#include <optional>
#include <stdexcept>

#include "parallel/comm_hooks/power_sgd.hpp"
#include "parallel/store/reducer.hpp"
#include "support/temporary_folder.hpp"
#include "training.hpp"

namespace lockstep::parallel {
namespace join_test {

/// A single layer without bias, whose loss is the sum of its outputs: the gradient does not depend on the parameters.
class Sum : public models::Model {
 public:
  explicit Sum(std::int64_t features) {
    torch::manual_seed(1);
    layer = register_module("layer", std::make_shared<models::Linear>(features, features, /*has_bias=*/false));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*layer, input).sum(); }
  models::LossMap losses(const at::Tensor& output, const at::Tensor&) const override { return {{"loss", output}}; }

  std::shared_ptr<models::Linear> layer;
};

class JoinTest : public TrainingTest {
 protected:
  /// Ranks that have an input in a step, if rank r has `steps(r)`.
  int active_in(int step, const std::function<int(int)>& steps) const {
    int active = 0;
    for (int r = 0; r < size(); ++r) active += steps(r) > step ? 1 : 0;
    return active;
  }
};

// The ability of a reducer by itself, as loops use it in which every rank knows who has samples.
TEST_F(JoinTest, ARankWithoutSamplesContributesZeros) {
  const int active = std::max(1, size() - 1);  // all but the last rank
  for (const int divisor : {size(), active}) {
    const auto model = std::make_shared<Sum>(5);
    const auto wrapper = wrap(model);
    auto& uneven = dynamic_cast<UnevenRanks&>(wrapper->reducer());
    uneven.set_divisor(divisor);
    for (int step = 0; step < 3; ++step) {
      wrapper->parameters().drop_gradients();
      if (rank() < active) {
        wrapper->forward(torch::full({1, 5}, 50.0, at::kDouble)).backward();
      } else {
        uneven.contribute_zeros();
      }
      const at::Tensor expected = torch::full({5, 5}, 50.0 * active / divisor, at::kDouble);
      EXPECT_TRUE(at::allclose(model->layer->weight.grad(), expected, 1e-14)) << step;
    }
  }
}

// Case 90.
TEST_F(JoinTest, TheDivisorIsThatOfAllRanksOrOfThoseWithInputs) {
  for (const bool divide_by_initial : {true, false}) {
    auto model = std::make_shared<Sum>(5);
    auto wrapper = wrap(model);
    const auto steps = [](int r) { return r == 0 ? 3 : 5; };
    Join join(*wrapper, {.divide_by_initial = divide_by_initial});
    for (int step = 0; step < steps(rank()); ++step) {
      wrapper->parameters().drop_gradients();
      wrapper->forward(torch::full({1, 5}, 50.0, at::kDouble)).backward();
      const double active = active_in(step, steps);
      const double expected = divide_by_initial ? 50.0 * active / size() : 50.0;
      EXPECT_TRUE(at::allclose(model->layer->weight.grad(), torch::full({5, 5}, expected, at::kDouble), 1e-14));
    }
    join.finish();
    EXPECT_TRUE(is_same_everywhere(*model));
    // The scope is over: the divisor is that of all ranks again.
    wrapper->parameters().drop_gradients();
    wrapper->forward(torch::full({1, 5}, 50.0, at::kDouble)).backward();
    EXPECT_TRUE(at::allclose(model->layer->weight.grad(), torch::full({5, 5}, 50.0, at::kDouble), 1e-14));
  }
}

// Case 91.
TEST_F(JoinTest, EveryInputCountsOnce) {
  Sum alone(10);
  const at::Tensor input = at::sin(torch::arange(30, at::kDouble)).view({3, 10});
  constexpr double kLr = 0.03;
  for (int r = 0; r < size(); ++r) {
    for (int step = 0; step < 2 * (r + 1); ++step) {
      alone.zero_grad();
      alone.forward(input).backward();
      const torch::NoGradGuard no_grad;
      alone.layer->weight -= kLr * alone.layer->weight.grad();
    }
  }
  auto model = std::make_shared<Sum>(10);
  auto wrapper = wrap(model);
  auto optimizer = optimizer_of(*wrapper, "sgd", kLr * size());
  Join join(*wrapper);
  for (int step = 0; step < 2 * (rank() + 1); ++step) wrapper->train_step({input, input}, optimizer);
  join.finish();
  expect_close(values_of(*model), values_of(alone));
}

/// The parameters that the matrix of case 92 trains.
struct Work {
  const char* name;
  std::shared_ptr<models::Model> (*make)();
  batch::Batch (*batch)();
  DdpOptions options;
};

class BatchNormNet : public SquaredModel {
 public:
  BatchNormNet() {
    torch::manual_seed(1);
    first = register_module("first", std::make_shared<models::Linear>(3, 4));
    norm = register_module("norm", std::make_shared<models::BatchNorm>(4));
    second = register_module("second", std::make_shared<models::Linear>(4, 2));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) override {
    return models::run(*second, models::run(*norm, models::run(*first, input)));
  }

  std::shared_ptr<models::Linear> first;
  std::shared_ptr<models::BatchNorm> norm;
  std::shared_ptr<models::Linear> second;
};

class ConvNet : public SquaredModel {
 public:
  ConvNet() {
    torch::manual_seed(1);
    first = register_module("first", std::make_shared<models::Conv2d>(1, 20, 3));
    second = register_module("second", std::make_shared<models::Conv2d>(20, 32, 3));
    third = register_module("third", std::make_shared<models::Conv2d>(32, 256, 3));
  }
  at::Tensor forward(const at::Tensor& input) override {
    return models::run(*third, at::relu(models::run(*second, at::relu(models::run(*first, input))))).mean({2, 3});
  }

  std::shared_ptr<models::Conv2d> first;
  std::shared_ptr<models::Conv2d> second;
  std::shared_ptr<models::Conv2d> third;
};

/// Its second branch is used in every other forward of a rank, its third never.
class SometimesUnused : public SquaredModel {
 public:
  SometimesUnused() {
    torch::manual_seed(1);
    first = register_module("first", std::make_shared<models::Linear>(3, 2));
    second = register_module("second", std::make_shared<models::Linear>(3, 2));
    register_module("third", std::make_shared<models::Linear>(3, 2));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor output = models::run(*first, input);
    return ++forwards_ % 2 == 0 ? output + models::run(*second, input) : output;
  }

  std::shared_ptr<models::Linear> first;
  std::shared_ptr<models::Linear> second;

 private:
  int forwards_ = 0;
};

template <class Model>
std::shared_ptr<models::Model> make_model() {
  return std::make_shared<Model>();
}

std::vector<Work> works() {
  const auto hook = [](CommHook (*make)(mpi::Collectives&)) {
    return [make](mpi::Collectives& all) { return ChosenHook{.hook = make(all)}; };
  };
  const auto power_sgd = [](bool is_batched) {
    return [is_batched](mpi::Collectives& all) {
      return power_sgd_hook(all, {.start_step = 2, .min_compression_rate = 1, .is_batched = is_batched});
    };
  };
  const auto small = [] { return samples_of(0, 0); };
  const auto wide = [] { return batch::Batch(torch::ones({1, 1000}, at::kDouble), torch::zeros({1, 1}, at::kDouble)); };
  const auto image = [] {
    return batch::Batch(at::sin(torch::arange(36, at::kFloat)).view({1, 1, 6, 6}), torch::zeros({1, 256}));
  };
  const BucketLimits tiny = {{8}, 8};
  return {
      {"batch norm", make_model<BatchNormNet>, small, {.buffers = BufferMode::broadcast}},
      {"convolutions", make_model<ConvNet>, image, {}},
      {"wide", [] { return std::shared_ptr<models::Model>(std::make_shared<TwoLayers>(1000, 1, 1)); }, wide, {}},
      {"unused", make_model<SometimesUnused>, small, {.reducer = {.limits = tiny, .finds_unused = true}}},
      {"all_reduce", make_model<TwoLayers>, small, {.comm_hook = hook(all_reduce_hook)}},
      {"fp16", make_model<TwoLayers>, small, {.comm_hook = hook(fp16_hook)}},
      {"powersgd", make_model<TwoLayers>, small, {.reducer = {.limits = tiny}, .comm_hook = power_sgd(false)}},
      {"batched powersgd", make_model<TwoLayers>, small, {.comm_hook = power_sgd(true)}},
  };
}

class JoinMatrixTest : public JoinTest {
 protected:
  /// Rank r has base + r * offset inputs, of which every interval-th synchronizes.
  void train(const Work& work, int interval, int base, int offset) {
    SCOPED_TRACE(std::string(work.name) + ", every " + std::to_string(interval) + "th of " + std::to_string(base) +
                 " + " + std::to_string(offset) + " r");
    auto model = work.make();
    auto wrapper = wrap(model, work.options);
    auto optimizer = optimizer_of(*wrapper, "sgd", 0.01, interval);
    const int steps = (base + rank() * offset) / interval * interval;  // whole groups
    Join join(*wrapper);
    for (int step = 0; step < steps; ++step) wrapper->train_step(work.batch(), optimizer);
    const std::vector<at::Tensor> mine = values_of(*model);
    join.finish();
    EXPECT_TRUE(is_same_everywhere(*model));
    if (rank() == size() - 1) expect_equal(values_of(*model), mine);  // who came last keeps what it had
    for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  }
};

// Case 92.
TEST_F(JoinMatrixTest, RanksOfAnyLengthEndAlike) {
  for (const Work& work : works()) {
    for (const int interval : {1, 2}) {
      for (const int base : {0, 5}) train(work, interval, base, 2);
    }
  }
}

// Case 92.
TEST_F(JoinMatrixTest, LongDifferencesAndIntervalsEndAlike) {
  const Work work = works().front();
  for (const int interval : {1, 3}) {
    for (const int base : {0, 5}) {
      for (const int offset : {3, 10}) train(work, interval, base, offset);
    }
  }
}

/// Its forward reduces something by itself.
class Communicating : public TwoLayers {
 public:
  explicit Communicating(mpi::Collectives& collectives) : collectives_(&collectives) {}
  at::Tensor forward(const at::Tensor& input) override {
    float one = 1;
    collectives_->all_reduce(&one, 1, DType::float32, mpi::ReduceOp::sum);
    return TwoLayers::forward(input) * one;
  }

 private:
  mpi::Collectives* collectives_;
};

// Case 93.
TEST_F(JoinTest, TheFirstRankWithoutInputsCanEndItForAll) {
  const auto own = collectives_->split(0);
  auto model = std::make_shared<Communicating>(*own);
  auto wrapper = wrap(model);
  auto optimizer = optimizer_of(*wrapper);
  int done = 0;
  std::string text;
  try {
    Join join(*wrapper, {.throws_early = true});
    for (; done < (rank() == 0 ? 5 : 10); ++done) wrapper->train_step(samples_of(rank(), done), optimizer);
    join.finish();
  } catch (const DataError& error) {
    EXPECT_TRUE(error.is_agreed());
    text = error.what();
  }
  EXPECT_EQ(done, 5);
  EXPECT_TRUE(is_same_everywhere(*model));
  if (size() == 1) {
    EXPECT_EQ(text, "");
  } else if (rank() == 0) {
    EXPECT_EQ(text, "join: rank 0 has exhausted all inputs");
  } else {
    EXPECT_EQ(text, "join: rank 0 has exhausted all inputs while this rank has more inputs: all ranks stop");
  }
}

// Case 93: nothing is wrong when all end together.
TEST_F(JoinTest, RanksThatEndTogetherDoNotThrow) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  auto optimizer = optimizer_of(*wrapper);
  Join join(*wrapper, {.throws_early = true});
  for (int step = 0; step < 3; ++step) wrapper->train_step(samples_of(rank(), step), optimizer);
  EXPECT_NO_THROW(join.finish());
}

// Case 94.
TEST_F(JoinTest, ADisabledJoinDoesNothing) {
  auto model = std::make_shared<Sum>(1);
  auto wrapper = wrap(model);
  Join join(*wrapper, {.is_enabled = false});
  for (int step = 0; step < 5; ++step) {
    wrapper->parameters().drop_gradients();
    wrapper->forward(torch::full({1, 1}, rank(), at::kDouble)).backward();
    EXPECT_DOUBLE_EQ(model->layer->weight.grad().item<double>(), 0.5 * (size() - 1));  // the mean rank
  }
  if (rank() == 0) join.finish();  // collective otherwise
}

// Case 94.
TEST_F(JoinTest, AnExceptionLeavesTheScopeAsItIs) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  auto optimizer = optimizer_of(*wrapper);
  const std::string text = error_of<std::runtime_error>([&] {
    Join join(*wrapper, {.divide_by_initial = false});
    wrapper->train_step(samples_of(rank(), 0), optimizer);
    if (rank() >= 0) throw std::runtime_error("the user's own");
    join.finish();
  });
  EXPECT_EQ(text, "the user's own");
  wrapper->train_step(samples_of(rank(), 1), optimizer);  // no scope any more
  EXPECT_TRUE(is_same_everywhere(*model));
  Join again(*wrapper);
  again.finish();
}

TEST_F(JoinTest, NobodyWithInputsChangesNothing) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  const std::vector<at::Tensor> before = values_of(*model);
  Join join(*wrapper);
  join.finish();
  join.finish();
  expect_equal(values_of(*model), before);
}

TEST_F(JoinTest, AWrapperThatCannotJoinIsRefused) {
  const auto refusal = [](DistributedDataParallel& wrapper) {
    return error_of<ConfigError>([&] { const Join join(wrapper); });
  };
  auto weighing = wrap(std::make_shared<TwoLayers>(), {.weighs_samples = true});
  EXPECT_NE(refusal(*weighing).find("ddp.weigh_samples=false"), std::string::npos);
  auto lanes = wrap(std::make_shared<TwoLayers>(), {.lanes = 8});
  EXPECT_NE(refusal(*lanes).find("train.lanes=0"), std::string::npos);
  auto sharded = wrap(std::make_shared<TwoLayers>(), {.sharding = {.stage = 2}});
  EXPECT_NE(refusal(*sharded).find("strategy.name=ddp"), std::string::npos);
  auto plain = wrap(std::make_shared<TwoLayers>());
  {
    const Join first(*plain);
    EXPECT_EQ(refusal(*plain), "join: the wrapper is already in a Join");
  }
  EXPECT_EQ(refusal(*plain), "");
  if (size() == 1) return;
  auto sharing = wrap(std::make_shared<TwoLayers>(), {.shares_parameters = true});
  EXPECT_NE(refusal(*sharing).find("ddp.shared_parameters=false"), std::string::npos);
  auto separate =
      wrap(std::make_shared<TwoLayers>(),
           {.parts = {{"l0.weight", 0}, {"l0.bias", 0}, {"l1.weight", 1}, {"l1.bias", 1}}, .separates_parts = true});
  EXPECT_NE(refusal(*separate).find("strategy.separate=false"), std::string::npos);
}

TEST_F(JoinTest, RanksMustSynchronizeTheSameSteps) {
  if (size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  Join join(*wrapper);
  std::optional<DistributedDataParallel::NoSync> only_accumulates;
  if (rank() == 1) only_accumulates.emplace(*wrapper);
  EXPECT_NE(error_of<ConfigError>([&] { backward(*wrapper, samples_of(rank(), 0)); }).find("no_sync"),
            std::string::npos);
}

TEST_F(JoinTest, SeveralWrappersJoinTogether) {
  auto first = std::make_shared<TwoLayers>();
  auto second = std::make_shared<TwoLayers>(3, 6, 2);
  auto alone = std::make_shared<TwoLayers>(3, 6, 2);
  auto one = wrap(first);
  auto two = wrap(second);
  auto three = wrap(alone);
  auto optimizer_one = optimizer_of(*one);
  auto optimizer_two = optimizer_of(*two);
  auto optimizer_three = optimizer_of(*three);
  {
    Join join({one.get(), two.get()}, {.divide_by_initial = false});
    for (int step = 0; step < 2 + rank(); ++step) {
      one->train_step(samples_of(rank(), step), optimizer_one);
      two->train_step(samples_of(rank(), step + 1), optimizer_two);
    }
    join.finish();
  }
  EXPECT_TRUE(is_same_everywhere(*first));
  EXPECT_TRUE(is_same_everywhere(*second));
  {
    Join join(*three, {.divide_by_initial = false});
    for (int step = 0; step < 2 + rank(); ++step) three->train_step(samples_of(rank(), step + 1), optimizer_three);
    join.finish();
  }
  expect_equal(values_of(*second), values_of(*alone));
}

// Buffers come from the highest rank that has inputs, not from rank 0.
TEST_F(JoinTest, BuffersFollowARankWithInputs) {
  auto model = std::make_shared<BatchNormNet>();
  auto wrapper = wrap(model, {.buffers = BufferMode::broadcast});
  auto optimizer = optimizer_of(*wrapper);
  const int steps = rank() == size() - 1 ? 1 : 4;
  Join join(*wrapper);
  for (int step = 0; step < steps; ++step) wrapper->train_step(samples_of(rank(), step), optimizer);
  const at::Tensor mine = model->norm->running_mean.clone();
  join.finish();
  EXPECT_TRUE(is_same_everywhere(*model));
  const bool is_authority = rank() == std::max(0, size() - 2);
  EXPECT_TRUE(!is_authority || at::equal(model->norm->running_mean, mine));
  EXPECT_EQ(model->norm->num_batches_tracked.item<std::int64_t>(), size() == 1 ? 1 : 4);
}

TEST_F(JoinTest, AThousandStepsBehindIsWorthAWarning) {
  if (size() != 2) GTEST_SKIP() << "two ranks show it";
  const testing::TemporaryFolder folder;
  log::configure({.rank = rank(), .world_size = size(), .file = folder.path("log"), .to_console = false});
  auto model = std::make_shared<Sum>(1);
  auto wrapper = wrap(model);
  auto optimizer = optimizer_of(*wrapper);
  Join join(*wrapper);
  for (int step = 0; step < (rank() == 0 ? 1001 : 0); ++step) {
    const at::Tensor one = torch::ones({1, 1}, at::kDouble);
    wrapper->train_step({one, one}, optimizer);
  }
  join.finish();
  log::flush();
  const std::string text = folder.read("log");
  EXPECT_EQ(text.find("rank 1 has at least 1000 fewer inputs than other ranks") != std::string::npos, rank() == 1)
      << text;
  log::configure({});
}

}  // namespace join_test
}  // namespace lockstep::parallel
