// SPDX-License-Identifier: BSD-3-Clause
// Blocks that backward runs again: their gradients are averaged as if they had been kept.
#include "models/layers/recompute.hpp"

#include <lockstep/models/functional.hpp>

#include <functional>

#include "parallel/store/parameter_store.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace recompute_test {

using models::RecomputeMode;

const std::vector<std::int64_t> kWidths = {5, 20, 20, 3};
constexpr RecomputeMode kModes[] = {RecomputeMode::plain, RecomputeMode::reentrant};
const ReducerOptions kDynamic = {};
const ReducerOptions kSearching = {.finds_unused = true};
const ReducerOptions kStatic = {.has_static_graph = true};

/// Runs one layer, by `recompute` or just so.
using Layer = std::function<at::Tensor(Linear&, const at::Tensor&)>;

at::Tensor keep(Linear& layer, const at::Tensor& input) { return models::run(layer, input); }

Layer recomputed(RecomputeMode mode) {
  return [mode](Linear& layer, const at::Tensor& input) { return models::recompute(layer, input, mode); };
}

/// A forward in which `inner` runs the layer in the middle, once or several times.
using Forward = std::function<at::Tensor(Layers& model, const Layer& inner, const at::Tensor& input)>;

at::Tensor once(Layers& model, const Layer& inner, const at::Tensor& input) {
  return model.run(2, at::tanh(inner(*model.layers[1], at::tanh(model.run(0, input)))));
}

at::Tensor twice(Layers& model, const Layer& inner, const at::Tensor& input) {
  const at::Tensor hidden = inner(*model.layers[1], at::tanh(model.run(0, input)));
  return model.run(2, at::tanh(inner(*model.layers[1], at::tanh(hidden))));
}

class RecomputeTest : public ParallelTest {
 protected:
  /// Five steps of a wrapped model whose gradients must be those of one process that keeps everything.
  void expect_trains(const Forward& forward, RecomputeMode mode, ReducerOptions options) {
    SCOPED_TRACE(mode == RecomputeMode::plain ? "plain" : "reentrant");
    options.limits = {.bucket_bytes = {1 << 20}};
    auto model = std::make_shared<Layers>(kWidths);
    Layers alone(kWidths);
    const auto wrapper = wrap(model, {.reducer = options});
    for (int step = 0; step < 5; ++step) {
      drop_gradients(*model);
      loss_of(*wrapper, *model, forward, mode, step).backward();
      const auto loss_alone = [&](int r) {
        const batch::Batch batch = batch_of(r, step, kWidths, 16);
        return (forward(alone, keep, batch.input()) - batch.target()).square().mean();
      };
      // The gradients of several uses of a layer may be added in another order.
      expect_gradients(*model, average_gradients(alone, size(), loss_alone), 1e-12);
    }
  }

  /// The sentence with which every rank refuses a first step; then the ranks can continue.
  std::string refusal_of(const Forward& forward, const ReducerOptions& options) {
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, {.reducer = options});
    const std::string text =
        refusal([&] { loss_of(*wrapper, *model, forward, RecomputeMode::reentrant, 0).backward(); });
    wrapper->reset_state();
    loss_of(*wrapper, *model, forward, RecomputeMode::plain, 1).backward();
    EXPECT_TRUE(is_same_everywhere(model->layers[1]->weight.grad()));
    return text;
  }

  at::Tensor loss_of(DistributedDataParallel& wrapper, Layers& model, const Forward& forward, RecomputeMode mode,
                     int step) {
    const batch::Batch batch = batch_of(rank(), step, kWidths, 16);
    const at::Tensor output = wrapper.run([&] { return forward(model, recomputed(mode), batch.input()); });
    return (output - batch.target()).square().mean();
  }
};

// Case 65.
TEST_F(RecomputeTest, ALayerThatIsUsedOnce) {
  for (const RecomputeMode mode : kModes) {
    for (const ReducerOptions& options : {kDynamic, kStatic}) expect_trains(once, mode, options);
  }
}

// Case 66: what runs in a backward of its own lies outside of the graph that is searched, and comes all the same.
TEST_F(RecomputeTest, ASearchForUnusedParametersNeedsThePlainMode) {
  expect_trains(once, RecomputeMode::plain, kSearching);
  for (const RecomputeMode mode : kModes) expect_trains(once, mode, {.finds_unused = true, .has_static_graph = true});
  const std::string text = refusal_of(once, kSearching);
  if (size() == 1) return;
  EXPECT_TRUE(contains(text, "'l1.weight'") || contains(text, "'l1.bias'")) << text;
  EXPECT_TRUE(contains(text, "can be marked ready only once")) << text;
  EXPECT_TRUE(contains(text, "ddp.static_graph")) << text;
}

// Case 67.
TEST_F(RecomputeTest, ALayerThatIsUsedTwice) {
  for (const ReducerOptions& options : {kDynamic, kSearching, kStatic}) {
    expect_trains(twice, RecomputeMode::plain, options);
  }
  expect_trains(twice, RecomputeMode::reentrant, kStatic);
  for (const ReducerOptions& options : {kDynamic, kSearching}) {
    const std::string text = refusal_of(twice, options);
    EXPECT_EQ(contains(text, "can be marked ready only once"), size() > 1) << text;
  }
}

/// A linear layer whose weight another one may have, too.
class Half : public models::Block {
 public:
  Half(const at::Tensor& of_weight, std::int64_t seed)
      : weight(register_parameter("weight", of_weight)), bias(register_parameter("bias", eighths({4}, seed))) {}
  at::Tensor forward(const at::Tensor& input) override { return models::linear(input, weight, bias); }

  at::Tensor weight;
  at::Tensor bias;
};

/// Two layers, of one weight or of two.
class Pair : public models::Model {
 public:
  explicit Pair(bool is_tied = true) {
    const at::Tensor weight = eighths({4, 4}, 1);
    layers = {register_module("first", std::make_shared<Half>(weight, 2)),
              register_module("second", std::make_shared<Half>(is_tied ? weight : eighths({4, 4}, 3), 4))};
  }
  at::Tensor forward(const at::Tensor& input) override {
    return models::run(*layers[1], at::tanh(models::run(*layers[0], input)));
  }

  std::vector<std::shared_ptr<Half>> layers;
};

at::Tensor input_of(int rank, int step) { return eighths({16, 4}, 3 * step + rank); }

class TiedRecomputeTest : public ParallelTest {
 protected:
  /// Five steps; `forward` runs a Pair, its second layer by the function that it gets.
  template <class Forward>
  void expect_trains(RecomputeMode mode, const ReducerOptions& options, const Forward& forward) {
    auto model = std::make_shared<Pair>();
    Pair alone;
    const auto wrapper = wrap(model, {.reducer = options});
    EXPECT_EQ(wrapper->store().size(), 3U);  // the weight once
    const auto again = [mode](models::Block& block, const at::Tensor& input) {
      return models::recompute(block, input, mode);
    };
    for (int step = 0; step < 5; ++step) {
      drop_gradients(*model);
      wrapper->run([&] { return forward(*model, again, input_of(rank(), step)); }).square().mean().backward();
      const auto once = [](models::Block& block, const at::Tensor& input) { return models::run(block, input); };
      const auto loss_alone = [&](int r) { return forward(alone, once, input_of(r, step)).square().mean(); };
      expect_gradients(*model, average_gradients(alone, size(), loss_alone), 1e-12);
    }
  }
};

// Case 68: upstream refuses the plain mode with a static graph; here it is like any other.
TEST_F(TiedRecomputeTest, AWholeModelThatSharesAWeight) {
  const auto forward = [](Pair& model, const auto& again, const at::Tensor& input) { return again(model, input); };
  for (const RecomputeMode mode : kModes) {
    for (const ReducerOptions& options : {kDynamic, kStatic}) expect_trains(mode, options, forward);
  }
}

// Case 68: a layer used twice, whose weight another layer has, too.
TEST_F(TiedRecomputeTest, ALayerThatIsUsedTwice) {
  const auto forward = [](Pair& model, const auto& again, const at::Tensor& input) {
    const at::Tensor hidden = at::tanh(models::run(*model.layers[0], input));
    return again(*model.layers[1], at::tanh(again(*model.layers[1], hidden)));
  };
  for (const ReducerOptions& options : {kDynamic, kSearching, kStatic}) {
    expect_trains(RecomputeMode::plain, options, forward);
  }
  expect_trains(RecomputeMode::reentrant, kStatic, forward);
}

// Case 68: layers take turns from step to step, and who has no turn has no gradient.
TEST_F(TiedRecomputeTest, LayersThatTakeTurns) {
  for (const bool is_tied : {true, false}) {
    auto model = std::make_shared<Pair>(is_tied);
    Pair alone(is_tied);
    const auto wrapper = wrap(model, {.reducer = kSearching});
    for (int step = 0; step < 4; ++step) {
      drop_gradients(*model);
      const auto turn = static_cast<std::size_t>(step % 2);
      const at::Tensor input = input_of(rank(), step);
      wrapper->run([&] { return models::recompute(*model->layers[turn], input); }).square().mean().backward();
      const auto loss_alone = [&](int r) {
        return models::run(*alone.layers[turn], input_of(r, step)).square().mean();
      };
      expect_gradients(*model, average_gradients(alone, size(), loss_alone), 1e-12);
      EXPECT_FALSE(model->layers[1 - turn]->bias.grad().defined());
      EXPECT_EQ(model->layers[1 - turn]->weight.grad().defined(), is_tied);
    }
  }
}

// Blocks that are named in the options are recomputed in every step, wherever gradients are averaged.
TEST_F(RecomputeTest, NamedBlocksTrainBitForBit) {
  for (const bool shares : {false, true}) {
    const auto train = [&](const std::vector<std::string>& blocks) {
      auto model = std::make_shared<Layers>(kWidths);
      const auto wrapper = wrap(model, {.shares_parameters = shares, .recompute = blocks});
      auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "adamw"}}, {.clip = {.max_norm = 0.25}});
      for (int step = 0; step < 5; ++step) wrapper->train_step(batch_of(rank(), step, kWidths), optimizer);
      return values_of(*model);
    };
    expect_equal(train({"l1", "l2"}), train({}));
  }
}

}  // namespace recompute_test
}  // namespace lockstep::parallel
