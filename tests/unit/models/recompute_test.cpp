// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/recompute.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {
namespace recompute_test {

constexpr RecomputeMode kModes[] = {RecomputeMode::plain, RecomputeMode::reentrant};

/// Linear, norm, dropout and tanh of 6 features; counts how often it runs.
class Unit : public Block {
 public:
  explicit Unit(std::shared_ptr<Linear> shared = nullptr) {
    linear = register_module("linear", shared ? std::move(shared) : std::make_shared<Linear>(6, 6));
    norm = register_module("norm", std::make_shared<BatchNorm>(6));
    dropout_ = register_module("dropout", std::make_shared<Dropout>(0.5));
  }
  at::Tensor forward(const at::Tensor& input) override {
    ++runs;
    return at::tanh(run(*dropout_, run(*norm, run(*linear, input))));
  }

  std::shared_ptr<Linear> linear;
  std::shared_ptr<BatchNorm> norm;
  int runs = 0;

 private:
  std::shared_ptr<Dropout> dropout_;
};

/// Three units, of which the first and the last share their linear layer.
class Stack : public Block {
 public:
  Stack() {
    for (int i = 0; i < 3; ++i) {
      const auto shared = i == 2 ? units[0]->linear : nullptr;
      units.push_back(register_module("unit" + std::to_string(i), std::make_shared<Unit>(shared)));
    }
    name_blocks();
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const auto& unit : units) x = run(*unit, x);
    return run(*units[1], x);  // a second time
  }

  std::vector<std::shared_ptr<Unit>> units;
};

std::shared_ptr<Stack> stack() {
  torch::manual_seed(1);
  return std::make_shared<Stack>();
}

/// The traces that one backward of the sum of squares leaves behind: gradients of input and parameters, buffers, and
/// what the generator gives next.
std::vector<at::Tensor> traces(Block& model, const at::Tensor& values) {
  torch::manual_seed(5);
  const at::Tensor input = values.detach().clone().requires_grad_(values.requires_grad());
  run(model, input).square().sum().backward();
  std::vector<at::Tensor> result = {input.grad().defined() ? input.grad() : torch::zeros({1})};
  for (const at::Tensor& parameter : model.parameters()) result.push_back(parameter.grad());
  for (const at::Tensor& buffer : model.buffers()) result.push_back(buffer.clone());
  result.push_back(torch::rand({4}));
  return result;
}

void expect_equal(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  // Shared weights: the order in which their gradients are added is free.
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-5, 1e-6)) << i;
}

// Cases 67 and 68, on one rank.
TEST(RecomputeTest, EverythingIsAsWithoutIt) {
  for (const bool needs_gradient : {true, false}) {
    const at::Tensor values = torch::randn({4, 6}).requires_grad_(needs_gradient);
    const std::vector<at::Tensor> expected = traces(*stack(), values);
    for (const RecomputeMode mode : kModes) {
      const auto model = stack();
      std::vector<at::Tensor> actual;
      {
        const ScopedTap tap(recompute_tap(*model, {"unit*"}, mode));
        actual = traces(*model, values);
      }
      expect_equal(actual, expected);
      EXPECT_EQ(model->units[0]->runs, 2);
      EXPECT_EQ(model->units[1]->runs, 4);
    }
  }
}

// Case 68: a weight that a block has under two names is one input of the recomputed function.
TEST(RecomputeTest, AWholeModelMayShareWeights) {
  const at::Tensor values = torch::randn({4, 6});
  const std::vector<at::Tensor> expected = traces(*stack(), values);
  for (const RecomputeMode mode : kModes) {
    const auto model = stack();
    torch::manual_seed(5);
    recompute(*model, values, mode).square().sum().backward();
    EXPECT_TRUE(model->units[0]->linear->weight.is_same(model->units[2]->linear->weight));
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), expected[1 + i], 1e-5, 1e-6)) << i;
    }
  }
}

TEST(RecomputeTest, BackwardMayComeAfterTheTap) {
  const at::Tensor values = torch::randn({4, 6}).requires_grad_();
  const std::vector<at::Tensor> expected = traces(*stack(), values);
  for (const RecomputeMode mode : kModes) {
    const auto model = stack();
    torch::manual_seed(5);
    at::Tensor output;
    {
      const ScopedTap tap(recompute_tap(*model, {"unit0", "unit1"}, mode));
      output = run(*model, values);
    }
    torch::rand({100});  // the generator has moved on
    values.mutable_grad().reset();
    output.square().sum().backward();
    EXPECT_TRUE(at::allclose(values.grad(), expected[0], 1e-5, 1e-6));
    EXPECT_EQ(model->units[0]->runs, 2);
    EXPECT_EQ(model->units[2]->runs, 1);
  }
}

TEST(RecomputeTest, BlocksInsideOfBlocksMayBeRecomputed) {
  const at::Tensor values = torch::randn({4, 6}).requires_grad_();
  const std::vector<at::Tensor> expected = traces(*stack(), values);
  for (const RecomputeMode mode : kModes) {
    const auto model = stack();
    const ScopedTap tap(recompute_tap(*model, {"unit*", "unit*.*"}, mode));
    expect_equal(traces(*model, values), expected);
  }
}

TEST(RecomputeTest, ABlockMayBeRecomputedByHand) {
  for (const RecomputeMode mode : kModes) {
    const auto unit = std::make_shared<Unit>();
    const at::Tensor input = torch::randn({4, 6}).requires_grad_();
    torch::manual_seed(5);
    const at::Tensor first = recompute(*unit, input, mode);
    torch::manual_seed(5);
    EXPECT_TRUE(at::equal(first, run(*unit, input)));
    unit->runs = 0;
    first.sum().backward();
    EXPECT_EQ(unit->runs, 1);
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(recompute(*unit, input, mode).requires_grad());
    EXPECT_EQ(unit->runs, 2);
  }
}

TEST(RecomputeTest, PlainAccumulatorsFireOnceReentrantOnesOncePerRun) {
  struct Count : torch::autograd::FunctionPostHook {
    explicit Count(int& calls) : calls_(calls) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      ++calls_;
      return outputs;
    }
    int& calls_;
  };
  for (const RecomputeMode mode : kModes) {
    const auto model = stack();
    int calls = 0;
    const auto accumulator = torch::autograd::impl::grad_accumulator(model->units[1]->linear->weight);
    accumulator->add_post_hook(std::make_unique<Count>(calls));
    const ScopedTap tap(recompute_tap(*model, {"unit*"}, mode));
    traces(*model, torch::randn({4, 6}));
    EXPECT_EQ(calls, mode == RecomputeMode::plain ? 1 : 2);
  }
}

TEST(RecomputeTest, PlainCanFormCertainGradientsOnly) {
  const auto unit = std::make_shared<Linear>(6, 6);
  const at::Tensor input = torch::randn({4, 6}).requires_grad_();
  const auto expected = torch::autograd::grad({run(*unit, input).square().sum()}, {input, unit->bias});
  const auto actual = torch::autograd::grad({recompute(*unit, input).square().sum()}, {input, unit->bias});
  for (const std::size_t i : {0, 1}) EXPECT_TRUE(at::equal(actual[i], expected[i]));
  EXPECT_FALSE(unit->weight.grad().defined());
  const at::Tensor loss = recompute(*unit, input, RecomputeMode::reentrant).sum();
  EXPECT_THROW(torch::autograd::grad({loss}, {input}, {}, true), ConfigError);
}

TEST(RecomputeTest, SecondDerivativesAreRefused) {
  for (const RecomputeMode mode : kModes) {
    const auto unit = std::make_shared<Unit>();
    const at::Tensor input = torch::randn({4, 6}).requires_grad_();
    const at::Tensor loss = recompute(*unit, input, mode).sum();
    EXPECT_THROW(torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true), ConfigError);
  }
}

TEST(RecomputeTest, WeightsFromElsewhereNeedTheReentrantMode) {
  class Borrowing : public Block {
   public:
    explicit Borrowing(at::Tensor weight) : weight_(std::move(weight)) {}
    at::Tensor forward(const at::Tensor& input) override { return at::linear(input, weight_); }

   private:
    at::Tensor weight_;
  };
  const at::Tensor weight = torch::ones({2, 6}).requires_grad_();
  const auto block = std::make_shared<Borrowing>(weight);
  const at::Tensor input = torch::ones({3, 6}).requires_grad_();
  EXPECT_THROW(recompute(*block, input).sum().backward(), ConfigError);
  recompute(*block, input, RecomputeMode::reentrant).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), torch::full({2, 6}, 3.0)));
}

TEST(RecomputeTest, BlocksMayReturnTheirInputOrAView) {
  class Alias : public Block {
   public:
    explicit Alias(bool is_view) : is_view_(is_view) {}
    at::Tensor forward(const at::Tensor& input) override { return is_view_ ? (input * 2).view({6, 2}) : input; }

   private:
    bool is_view_;
  };
  for (const RecomputeMode mode : kModes) {
    for (const bool is_view : {false, true}) {
      const auto block = std::make_shared<Alias>(is_view);
      const at::Tensor leaf = torch::ones({2, 6}).requires_grad_();
      const at::Tensor input = leaf * 3;
      recompute(*block, input, mode).add_(1).square().sum().backward();  // models change activations in place, too
      EXPECT_TRUE(at::equal(leaf.grad(), torch::full({2, 6}, is_view ? 84.0 : 24.0)));  // 2 (6 + 1) 6 and 2 (3 + 1) 3
    }
  }
}

TEST(RecomputeTest, CastsAreRepeated) {
  for (const RecomputeMode mode : kModes) {
    const auto unit = std::make_shared<Linear>(6, 6);
    const at::Tensor input = torch::randn({4, 6}).requires_grad_();
    std::vector<at::Tensor> gradients;
    for (const bool is_recomputed : {false, true}) {
      unit->zero_grad();
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const at::Tensor hidden = is_recomputed ? recompute(*unit, input, mode) : run(*unit, input);
      const at::Tensor output = run(*unit, hidden);  // output with gradients, after a run without
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      output.sum().backward();
      EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
      gradients.push_back(unit->weight.grad().clone());
    }
    EXPECT_TRUE(at::allclose(gradients[0], gradients[1], 0x1p-7, 0x1p-6));  // bfloat16 sums, in another order
  }
}

/// Mixes two tensors by a mask that may be absent; gives the mix, a view of it, what it does not train and places.
class Mixing : public Block {
 public:
  Mixing() : layer(register_module("layer", std::make_shared<Linear>(6, 6))) {}
  Tensors forward_tensors(const Tensors& inputs) override {
    ++runs;
    const at::Tensor mixed = run(*layer, inputs.at(0)) * inputs.at(1);
    const at::Tensor kept = inputs.at(2).defined() ? mixed * inputs[2] : mixed;
    return {kept, kept.slice(1, 0, 3), at::ones({2}), kept.argmax(1), {}};
  }

  std::shared_ptr<Linear> layer;
  int runs = 0;
};

TEST(RecomputeTest, BlocksMayHaveSeveralInputsAndOutputs) {
  for (const RecomputeMode mode : kModes) {
    for (const bool has_mask : {true, false}) {
      for (const bool uses_view : {true, false}) {
        torch::manual_seed(2);
        const auto block = std::make_shared<Mixing>();
        const at::Tensor a = torch::randn({4, 6}).requires_grad_();
        const at::Tensor b = torch::randn({4, 6}).requires_grad_();
        const Tensors inputs = {a, b, has_mask ? torch::rand({4, 6}) : at::Tensor()};
        std::vector<Tensors> gradients;
        for (const bool is_recomputed : {false, true}) {
          const Tensors outputs = is_recomputed ? recompute(*block, inputs, mode) : run(*block, inputs);
          ASSERT_EQ(outputs.size(), 5U);
          EXPECT_EQ(outputs[3].scalar_type(), at::kLong);
          EXPECT_FALSE(outputs[3].requires_grad());
          EXPECT_FALSE(outputs[4].defined());
          at::Tensor loss = outputs[0].square().sum() + outputs[2].sum();
          if (uses_view) loss = loss + 3 * outputs[1].sum();
          loss.backward();
          gradients.push_back({a.grad(), b.grad(), block->layer->weight.grad(), block->layer->bias.grad()});
          for (const at::Tensor& t : {a, b, block->layer->weight, block->layer->bias}) t.mutable_grad().reset();
        }
        for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::allclose(gradients[0][i], gradients[1][i], 1e-6)) << i;
        EXPECT_EQ(block->runs, 3);
      }
    }
  }
}

TEST(RecomputeTest, AnInputThatIsNotTrainedHasNoGradient) {
  for (const RecomputeMode mode : kModes) {
    const auto block = std::make_shared<Mixing>();
    const at::Tensor fixed = torch::randn({4, 6});
    recompute(*block, {fixed, fixed, fixed}, mode).front().sum().backward();
    EXPECT_TRUE(block->layer->weight.grad().defined());
    EXPECT_FALSE(fixed.grad().defined());
  }
}

TEST(RecomputeTest, TapsSeeBlocksOfSeveralTensors) {
  const auto block = std::make_shared<Mixing>();
  std::size_t inputs = 0;
  const ScopedTap tap([&](Block&, const Tensors& x, const Forward& next) {
    inputs = std::max(inputs, x.size());
    return next(x);
  });
  EXPECT_EQ(run(*block, {torch::ones({1, 6}), torch::ones({1, 6}), {}}).size(), 5U);
  EXPECT_EQ(inputs, 3U);
  const auto linear = std::make_shared<Linear>(6, 2);
  const at::Tensor one = torch::ones({1, 6});
  EXPECT_TRUE(at::equal(run(*linear, Tensors{one}).front(), run(*linear, one)));
  EXPECT_THROW(run(*linear, Tensors{one, one}), ConfigError);
}

TEST(RecomputeTest, PatternsNameBlocksLevelByLevel) {
  const auto model = stack();
  const auto count = [&](const std::vector<std::string>& patterns) {
    const ScopedTap tap(recompute_tap(*model, patterns));
    for (const auto& unit : model->units) unit->runs = 0;
    run(*model, torch::randn({4, 6})).sum().backward();
    return std::vector<int>{model->units[0]->runs, model->units[1]->runs, model->units[2]->runs};
  };
  EXPECT_EQ(count({}), (std::vector<int>{1, 2, 1}));
  EXPECT_EQ(count({"*"}), (std::vector<int>{2, 4, 2}));
  EXPECT_EQ(count({"unit[01]", "unit0"}), (std::vector<int>{2, 4, 1}));
  EXPECT_EQ(count({"*.linear"}), (std::vector<int>{1, 2, 1}));
  EXPECT_THROW(recompute_tap(*model, {"unit*", "unit7"}), ConfigError);
}

TEST(RecomputeTest, MistakesAreNamed) {
  const auto model = stack();
  try {
    recompute_tap(*model, {"block*"});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "model.recompute: the model does not have a block named 'block*'");
  }
}

}  // namespace recompute_test
}  // namespace lockstep::models
