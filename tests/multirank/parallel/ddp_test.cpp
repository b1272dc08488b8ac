// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstring>

namespace lockstep::parallel {
namespace {

using models::Linear;

/// Two linear layers; the second only when `uses_second`.
class TwoLayers : public models::Model {
 public:
  explicit TwoLayers(std::int64_t width = 4, const char* second_name = "second") {
    first = register_module("first", std::make_shared<Linear>(3, width));
    second = register_module(second_name, std::make_shared<Linear>(width, 2));
    to(at::kDouble);
    name_blocks();
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor hidden = at::tanh(models::run(*first, input));
    return uses_second ? models::run(*second, hidden) : hidden.slice(1, 0, 2);
  }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output - target).square().mean()}};
  }

  std::shared_ptr<Linear> first;
  std::shared_ptr<Linear> second;
  bool uses_second = true;
};

/// Whole numbers times an eighth, different for every (rank, step).
data::Batch batch_of(int rank, int step, std::int64_t samples = 2) {
  const at::Tensor input =
      torch::arange(samples * 3, at::kDouble).view({samples, 3}) * 0.125 + 0.5 * rank - 0.25 * step;
  const at::Tensor target = torch::arange(samples * 2, at::kDouble).view({samples, 2}) * 0.25 - 0.125 * rank;
  return {input, target};
}

optim::OptimWrapper sgd(ParameterStore& store, std::int64_t accumulation_steps = 1, double clip_norm = 0,
                        const char* name = "sgd") {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  section.set("name", name, "test");
  section.set("lr", "0.125", "test");
  const optim::Rule& rule = optim::find_rule(name);
  std::vector<optim::ParameterInfo> infos;
  for (std::size_t i = 0; i < store.size(); ++i)
    infos.push_back({store.parameter(i).name, store.parameter(i).tensor.dim()});
  optim::Clip clip;
  clip.max_norm = clip_norm;
  return {optim::Optimizer(rule, optim::build_groups(section, rule, infos), store),
          store,
          {.accumulation_steps = accumulation_steps, .clip = clip}};
}

class DdpTest : public ::testing::Test {
 protected:
  DdpTest() : collectives_(mpi::make_collectives(world_, {.backend = "auto", .timeout_s = 60})) {}

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

  std::unique_ptr<DistributedDataParallel> wrap(std::shared_ptr<models::Model> model, bool shares = false,
                                                BucketLimits limits = {}) {
    return std::make_unique<DistributedDataParallel>(
        std::move(model), world_, *collectives_,
        DdpOptions{.reducer = {.limits = limits}, .shares_parameters = shares});
  }

  /// Whether all ranks hold the same bytes.
  bool is_same_everywhere(const at::Tensor& tensor) const {
    const at::Tensor mine = tensor.detach().contiguous();
    const std::string bytes(static_cast<const char*>(mine.const_data_ptr()), mine.nbytes());
    const auto all = world_.all_gather(bytes);
    return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; });
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<mpi::Collectives> collectives_;
};

/// What one process gets that averages the gradients of all ranks' batches.
std::vector<at::Tensor> reference_gradients(TwoLayers& model, int world_size, int step) {
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  for (int rank = 0; rank < world_size; ++rank) {
    const data::Batch batch = batch_of(rank, step);
    (model.losses(model.forward(batch.input), batch.target)[0].second / world_size).backward();
  }
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

TEST_F(DdpTest, AllRanksGetRankZerosValues) {
  auto model = std::make_shared<TwoLayers>();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.fill_(rank() + 1.5);
    model->register_buffer("counter", torch::full({2}, rank() + 7.0));
  }
  wrap(model);
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(at::equal(parameter, torch::full_like(parameter, 1.5)));
  }
  EXPECT_TRUE(at::equal(model->named_buffers()["counter"], torch::full({2}, 7.0)));
}

TEST_F(DdpTest, GradientsAreTheAverageOverRanks) {
  torch::manual_seed(1);
  TwoLayers alone;
  torch::manual_seed(1);
  auto model = std::make_shared<TwoLayers>();
  for (const BucketLimits& limits : {BucketLimits{}, BucketLimits{{8}, 8}}) {
    auto wrapper = wrap(model, false, limits);
    for (int step = 0; step < 3; ++step) {
      const auto expected = reference_gradients(alone, size(), step);
      const data::Batch batch = batch_of(rank(), step);
      for (auto& parameter : model->parameters()) parameter.mutable_grad().reset();
      model->losses(wrapper->forward(batch.input), batch.target)[0].second.backward();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), expected[i], 1e-13, 1e-15)) << i;
        EXPECT_TRUE(is_same_everywhere(model->parameters()[i].grad()));
      }
    }
  }
}

TEST_F(DdpTest, GradientsAreViewsOfBuckets) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  std::vector<void*> places;
  for (int step = 0; step < 3; ++step) {  // the second step has new buckets
    const data::Batch batch = batch_of(rank(), step);
    wrapper->parameters().drop_gradients();
    model->losses(wrapper->forward(batch.input), batch.target)[0].second.backward();
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
      void* const place = model->parameters()[i].grad().data_ptr();
      if (step == 1) {
        places.push_back(place);
      } else if (step == 2 && size() > 1) {
        EXPECT_EQ(place, places[i]);
      }
    }
  }
}

TEST_F(DdpTest, NoSyncAccumulatesLocallyAndTheNextStepReducesTheSum) {
  torch::manual_seed(1);
  TwoLayers alone;
  torch::manual_seed(1);
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  for (auto& parameter : model->parameters()) parameter.mutable_grad().reset();
  const auto backward = [&](int step) {
    const data::Batch batch = batch_of(rank(), step);
    model->losses(wrapper->forward(batch.input), batch.target)[0].second.backward();
  };
  {
    const auto only_here = wrapper->no_sync();
    backward(0);
    EXPECT_EQ(is_same_everywhere(model->parameters()[0].grad()), size() == 1);
  }
  backward(1);
  auto expected = reference_gradients(alone, size(), 0);
  const auto second = reference_gradients(alone, size(), 1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), expected[i] + second[i], 1e-13, 1e-15));
  }
}

TEST_F(DdpTest, NoSyncIsLatchedAtForwardAndEndsWithItsScopeAfterAnError) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  EXPECT_THROW(
      {
        const auto only_here = wrapper->no_sync();
        wrapper->forward(torch::zeros({2, 99}, at::kDouble));
      },
      ConfigError);
  wrapper->parameters().drop_gradients();
  const data::Batch batch = batch_of(rank(), 0);
  const at::Tensor loss = model->losses(wrapper->forward(batch.input), batch.target)[0].second;
  {
    const auto only_here = wrapper->no_sync();
    loss.backward();  // forward was outside: this backward synchronises
  }
  EXPECT_TRUE(is_same_everywhere(model->parameters()[0].grad()));
}

TEST_F(DdpTest, AParameterWithoutGradientIsNamedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  auto optimizer = sgd(wrapper->parameters());
  model->uses_second = rank() != size() - 1;
  std::string text;
  try {
    wrapper->train_step(batch_of(rank(), 0), optimizer, 1.0);
  } catch (const ConfigError& error) {
    text = error.what();
    EXPECT_TRUE(error.is_agreed());
  }
  const std::string last = std::to_string(size() - 1);
  for (const std::string& part : {std::string("previous reduction"), "'second.weight' (index 2) on rank " + last,
                                  "'second.bias' (index 3) on rank " + last,
                                  std::string("all outputs of forward must take part in the loss on every rank"),
                                  std::string("ddp.find_unused_parameters=true")}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  // The wrapper is usable again.
  model->uses_second = true;
  optimizer.reset();
  wrapper->parameters().drop_gradients();
  wrapper->train_step(batch_of(rank(), 1), optimizer, 1.0);
  EXPECT_TRUE(is_same_everywhere(model->parameters()[0]));
}

TEST_F(DdpTest, AnExceptionInBackwardCanBeResetFrom) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  auto hook_owner = model->first->weight;
  const auto handle = hook_owner.register_hook([](const at::Tensor&) -> at::Tensor { throw DataError("stop"); });
  const data::Batch batch = batch_of(rank(), 0);
  EXPECT_ANY_THROW(model->losses(wrapper->forward(batch.input), batch.target)[0].second.backward());
  hook_owner.remove_hook(handle);
  wrapper->reducer().reset();
  wrapper->parameters().drop_gradients();
  model->losses(wrapper->forward(batch.input), batch.target)[0].second.backward();
  EXPECT_TRUE(is_same_everywhere(model->parameters()[0].grad()));
}

TEST_F(DdpTest, ModelsThatDifferAreRefusedOnEveryRankBeforeDataMoves) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const auto refusal = [&](std::shared_ptr<models::Model> model) {
    try {
      wrap(std::move(model));
    } catch (const ConfigError& error) {
      EXPECT_TRUE(error.is_agreed());
      return std::string(error.what());
    }
    return std::string();
  };
  const bool is_odd = rank() == 1;
  EXPECT_EQ(refusal(std::make_shared<TwoLayers>(is_odd ? 5 : 4)),
            "ddp: the ranks' models differ: rank 0 has parameter 'first.weight' float64 [4, 3] strides [3, 1], rank 1 "
            "has parameter 'first.weight' float64 [5, 3] strides [3, 1]; build the same model on every rank");
  EXPECT_NE(refusal(std::make_shared<TwoLayers>(4, is_odd ? "third" : "second")).find("'third.weight'"),
            std::string::npos);
  auto narrow = std::make_shared<TwoLayers>();
  if (is_odd) narrow->to(at::kFloat);
  EXPECT_NE(refusal(narrow).find("float32"), std::string::npos);
  auto frozen = std::make_shared<TwoLayers>();
  if (is_odd) frozen->second->bias.set_requires_grad(false);
  EXPECT_NE(refusal(frozen).find("frozen"), std::string::npos);
  auto more = std::make_shared<TwoLayers>();
  if (is_odd) more->register_buffer("extra", torch::zeros({1}));
  EXPECT_NE(refusal(more).find("rank 0 has nothing more, rank 1 has buffer 'extra'"), std::string::npos);
}

TEST_F(DdpTest, AModelWithNothingToTrainIsRefused) {
  auto model = std::make_shared<TwoLayers>();
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  EXPECT_THROW(wrap(model), ConfigError);
}

TEST_F(DdpTest, FrozenParametersStayAndTheOthersTrain) {
  auto model = std::make_shared<TwoLayers>();
  model->first->weight.set_requires_grad(false);
  auto wrapper = wrap(model);
  auto optimizer = sgd(wrapper->parameters());
  const at::Tensor frozen = model->first->weight.clone();
  const at::Tensor trained = model->second->weight.clone();
  wrapper->train_step(batch_of(rank(), 0), optimizer, 1.0);
  EXPECT_TRUE(at::equal(model->first->weight, frozen));
  EXPECT_FALSE(at::equal(model->second->weight, trained));
}

TEST_F(DdpTest, HooksEndWithTheWrapper) {
  auto model = std::make_shared<TwoLayers>();
  for (int round = 0; round < 3; ++round) {
    auto wrapper = wrap(model);
    auto optimizer = sgd(wrapper->parameters());
    wrapper->train_step(batch_of(rank(), round), optimizer, 1.0);
    EXPECT_TRUE(is_same_everywhere(model->parameters()[0]));
  }
  const data::Batch batch = batch_of(rank(), 0);
  model->losses(model->forward(batch.input), batch.target)[0].second.backward();
  EXPECT_EQ(is_same_everywhere(model->parameters()[0].grad()), size() == 1);  // nobody averages any more
}

TEST_F(DdpTest, ForwardWithoutGradientsIsNotCollective) {
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  const torch::NoGradGuard no_grad;
  if (rank() == 0) {
    for (int i = 0; i < 3; ++i) wrapper->forward(batch_of(0, i).input);
  }
  world_.barrier();
}

// The same arithmetic in other places gives the same bits. (Clipping is left out: a norm is a sum, and slices change
// its order.)
TEST_F(DdpTest, SharedAndPrivateParametersTrainToTheSameBits) {
  for (const char* rule : {"sgd", "adamw"}) {
    std::vector<at::Tensor> results;
    for (const bool shares : {false, true}) {
      torch::manual_seed(3);
      auto model = std::make_shared<TwoLayers>(37);
      auto wrapper = wrap(model, shares && collectives_->name() == "shm");
      auto optimizer = sgd(wrapper->parameters(), 2, 0, rule);
      for (int step = 0; step < 20; ++step) wrapper->train_step(batch_of(rank(), step), optimizer, 0.5);
      for (const auto& parameter : model->parameters()) {
        EXPECT_TRUE(is_same_everywhere(parameter));
        results.push_back(parameter.detach().clone());
      }
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(results[i], results[i + 4])) << rule << " " << i;
  }
}

TEST_F(DdpTest, SharedMemoryAndPlainMpiTrainToTheSameBits) {
  if (size() == 1) GTEST_SKIP() << "one rank uses neither";
  std::vector<std::vector<at::Tensor>> results;
  for (const char* backend : {"shm", "mpi"}) {
    const auto collectives = mpi::make_collectives(world_, {.backend = backend, .timeout_s = 60});
    torch::manual_seed(3);
    auto model = std::make_shared<TwoLayers>(37);
    DistributedDataParallel wrapper(model, world_, *collectives, {});
    auto optimizer = sgd(wrapper.parameters());
    for (int step = 0; step < 20; ++step) wrapper.train_step(batch_of(rank(), step), optimizer, 1.0);
    auto& values = results.emplace_back();
    for (const auto& parameter : model->parameters()) values.push_back(parameter.detach().clone());
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

TEST_F(DdpTest, OneRankInstallsNoHooks) {
  if (size() > 1) GTEST_SKIP() << "several ranks need them";
  auto model = std::make_shared<TwoLayers>();
  auto wrapper = wrap(model);
  model->uses_second = false;
  auto optimizer = sgd(wrapper->parameters());
  const at::Tensor unused = model->second->weight.clone();
  wrapper->train_step(batch_of(0, 0), optimizer, 1.0);  // an unused parameter is simply left alone
  EXPECT_TRUE(at::equal(model->second->weight, unused));
  EXPECT_EQ(collectives_->name(), "self");
}

}  // namespace
}  // namespace lockstep::parallel
