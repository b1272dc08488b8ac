// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of a model whose children have an optimizer each.
#include "engine/state/separate_state.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <memory>

#include "support/optimizer.hpp"

namespace lockstep::engine {
namespace separate_state_test {

using checkpoints::Archive;

/// Two layers that are trained, and one that is not.
class Pair : public models::Model {
 public:
  Pair(std::int64_t width, double value, at::ScalarType type) {
    const auto layer = [&](const char* name, std::int64_t in, std::int64_t out) {
      return register_module(name, std::make_shared<models::Linear>(in, out));
    };
    first = layer("first", 2, width);
    second = layer("second", width, 1);
    frozen = layer("frozen", 2, 2);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    frozen->register_buffer("count", torch::full({1}, value));
    to(type);
    name_blocks();
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters()) parameter.fill_(value);
  }
  at::Tensor forward(const at::Tensor& input) override {
    return models::run(*second, at::tanh(models::run(*first, input)));
  }

  std::shared_ptr<models::Linear> first;
  std::shared_ptr<models::Linear> second;
  std::shared_ptr<models::Linear> frozen;
};

struct Kind {
  bool is_shared = false;
  std::int64_t width = 3;
  std::string rule = "adamw";
  at::ScalarType type = at::kFloat;
};

/// A model of two optimizers: one of the first layer, sgd with a loss scale of the second.
struct Training {
  Training(const mpi::Communicator& world, mpi::Collectives& collectives, double value, const Kind& kind)
      : model(std::make_shared<Pair>(kind.width, value, kind.type)),
        wrapper(model, world, collectives, parallel::DdpOptions{.shares_parameters = kind.is_shared}),
        type(kind.type) {
    optimizers.add("first", testing::make_optimizer(wrapper.child("first").parameters(), {{"name", kind.rule}}));
    optimizers.add(
        "second", testing::make_optimizer(wrapper.child("second").parameters(), {{"name", "sgd"}, {"momentum", "0.9"}},
                                          {.scaler = optim::GradScalerOptions{.init_scale = 8, .growth_interval = 2}}));
  }

  void step(int number) {
    const auto rank = static_cast<double>(wrapper.world().rank());
    const batch::Batch batch{at::full({2, 2}, 0.25 * number + rank, type), at::Tensor()};
    wrapper.train_step(batch, optimizers, [&](const batch::Batch& given, optim::OptimWrapperDict& all) {
      all.at("first").update_params(model->forward(given.input()).square().mean());
      wrapper.child("second").parameters().drop_gradients();
      all.at("second").update_params(model->forward(given.input()).square().mean());
      wrapper.child("first").parameters().drop_gradients();
      return models::LossMap{};
    });
  }

  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> values;
    for (const at::Tensor& parameter : model->parameters()) values.push_back(parameter.detach().clone());
    for (const at::Tensor& buffer : model->buffers()) values.push_back(buffer.clone());
    return values;
  }

  std::shared_ptr<Pair> model;
  parallel::SeparateDistributedDataParallel wrapper;
  at::ScalarType type;
  optim::OptimWrapperDict optimizers;
};

bool are_equal(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

class SeparateStateTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<mpi::Collectives> collectives_ = mpi::make_collectives(world_, {.timeout_s = 60});
};

TEST_F(SeparateStateTest, ATrainingContinuesBitForBit) {
  const std::vector<Kind> kinds = {
      {},
      {.is_shared = true},
      {.rule = "adafactor"},  // its states have other shapes than the parameters
      {.is_shared = true, .rule = "muon"},
      {.type = at::kBFloat16},  // and these another type
      {.is_shared = true, .rule = "adagrad", .type = at::kBFloat16},
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.rule + (kind.is_shared ? ", shared, " : ", private, ") + at::toString(kind.type));
    Training first(world_, *collectives_, 0.5, kind);
    for (int step = 0; step < 3; ++step) first.step(step);
    const Archive archive = capture(first.wrapper, first.optimizers, 3, true);
    Training other(world_, *collectives_, -0.25, kind);
    EXPECT_FALSE(are_equal(other.values(), first.values()));
    EXPECT_EQ(restore(other.wrapper, other.optimizers, archive), 3);
    EXPECT_TRUE(are_equal(other.values(), first.values()));
    EXPECT_EQ(other.optimizers.at("second").scaler()->scale(), 16);  // grown after two steps
    EXPECT_EQ(other.optimizers.at("second").scaler()->state().growth_tracker, 1);
    world_.barrier();  // the archive borrows what the next step writes
    for (int step = 3; step < 6; ++step) {
      first.step(step);
      other.step(step);
    }
    EXPECT_TRUE(are_equal(other.values(), first.values()));
    EXPECT_EQ(other.optimizers.at("first").optimizer().steps(0)[0], 6);
  }
}

TEST_F(SeparateStateTest, WhatDoesNotFitIsListedAndNothingChanges) {
  Training first(world_, *collectives_, 0.5, {});
  first.step(0);
  const auto refusal = [&](Training& other, const std::function<void(Archive&)>& change) {
    Archive archive = capture(first.wrapper, first.optimizers, 1, true);
    change(archive);
    const std::vector<at::Tensor> before = other.values();
    std::string text;
    try {
      restore(other.wrapper, other.optimizers, archive);
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed());
      text = error.what();
    }
    EXPECT_TRUE(are_equal(other.values(), before));
    return text;
  };
  const auto nothing = [](Archive&) {};
  Training wider(world_, *collectives_, 0.5, {.width = 4});
  EXPECT_NE(refusal(wider, nothing).find("/model/params/first.weight is float32 [3, 2], the run has float32 [4, 2]"),
            std::string::npos);
  Training by_adam(world_, *collectives_, 0.25, {.rule = "adam"});
  EXPECT_NE(refusal(by_adam, nothing).find("its optimizer first is adamw, the run's is adam"), std::string::npos);
  Training same(world_, *collectives_, 0.25, {});
  const auto adds = [](Archive& archive) { archive.set("/optim/third", "type", std::string("sgd")); };
  EXPECT_NE(refusal(same, adds).find("the run does not have an optimizer named third"), std::string::npos);
  Training more(world_, *collectives_, 0.25, {});
  more.optimizers = {};
  more.optimizers.add("second", testing::make_optimizer(more.wrapper.child("second").parameters(), {{"name", "sgd"}}));
  EXPECT_NE(refusal(more, nothing).find("the run does not have an optimizer named first"), std::string::npos);
}

}  // namespace separate_state_test
}  // namespace lockstep::engine
