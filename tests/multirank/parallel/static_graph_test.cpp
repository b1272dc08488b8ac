// SPDX-License-Identifier: BSD-3-Clause
// Graphs that are learned in the first step.
#include <lockstep/log/log.hpp>

#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::parallel {
namespace static_graph_test {

using StaticGraphTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 4, 2};
const ReducerOptions kIsStatic = {.has_static_graph = true};

/// Runs the first `layers` layers.
at::Tensor run_some(Layers& model, std::size_t layers, const at::Tensor& input) {
  at::Tensor values = input;
  for (std::size_t i = 0; i < layers; ++i) values = at::tanh(model.run(i, values));
  return values;
}

// Case 63: the graph is declared static where the wrapper is made, so it cannot be declared too late. Declared twice it
// is static.
TEST_F(StaticGraphTest, WinsOverSearchingForUnusedParameters) {
  const testing::TemporaryFolder folder;
  log::configure({.rank = rank(), .world_size = size(), .file = folder / "log", .to_console = false});
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model, {.reducer = {.finds_unused = true, .has_static_graph = true}});
  log::configure({.rank = rank(), .world_size = size()});
  const std::string warning = "ddp.find_unused_parameters has no effect with ddp.static_graph";
  EXPECT_EQ(contains(folder.read("log"), warning), size() > 1);
  for (int step = 0; step < 2; ++step) {
    drop_gradients(*model);
    wrapper->run([&] { return run_some(*model, 2, batch_of(rank(), step, kWidths).input()).sum(); }).backward();
  }
  EXPECT_EQ(report_of(wrapper->reducer()).is_rebuilt, size() > 1);
}

// Case 64.
TEST_F(StaticGraphTest, AParameterThatIsUsedLaterIsNamed) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model, {.reducer = kIsStatic});
  const auto backward = [&](std::size_t layers) {
    drop_gradients(*model);
    wrapper->run([&] { return run_some(*model, layers, batch_of(rank(), 0, kWidths).input()).sum(); }).backward();
  };
  backward(2);
  const std::string text = refusal([&] { backward(3); });
  EXPECT_TRUE(contains(text, "the training graph has changed: parameter at index ")) << text;
  EXPECT_TRUE(contains(text, "('l2.weight')") || contains(text, "('l2.bias')")) << text;
  wrapper->reset_state();
  for (int step = 0; step < 2; ++step) backward(2);
  EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight.grad()));
}

// Case 64.
TEST_F(StaticGraphTest, AParameterThatIsNotUsedLaterIsNamed) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model, {.reducer = kIsStatic});
  const auto loss = [&](std::size_t layers) {
    return wrapper->run([&] { return run_some(*model, layers, batch_of(rank(), 0, kWidths).input()).sum(); });
  };
  for (int step = 0; step < 2; ++step) {
    drop_gradients(*model);
    loss(3).backward();
  }
  // Ranks with all gradients wait inside backward, the last one sees it when its next forward begins.
  const std::string text = refusal([&] {
    loss(is_last() ? 2 : 3).backward();
    EXPECT_TRUE(is_last());
    loss(3);
  });
  const std::string last = std::to_string(size() - 1);
  EXPECT_TRUE(contains(text, "no gradient for 'l2.weight' (index 4) on rank " + last)) << text;
  EXPECT_TRUE(contains(text, "not compatible with a static graph")) << text;
}

// Several uses of a layer in one step are one use of its gradient accumulator; several backward passes are several.
TEST_F(StaticGraphTest, ALayerMayBeUsedSeveralTimes) {
  for (const bool is_split : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    Layers alone(kWidths);
    const auto wrapper = wrap(model, {.reducer = kIsStatic});
    const auto forward = [](Layers& layers, int r, int step) {
      const at::Tensor hidden = at::tanh(layers.run(0, batch_of(r, step, kWidths).input()));
      return layers.run(2, at::tanh(layers.run(1, at::tanh(layers.run(1, hidden))))).sum();
    };
    for (int step = 0; step < 4; ++step) {
      drop_gradients(*model);
      if (is_split) {  // the hidden values' gradient comes by a backward of its own, inside the graph's
        const at::Tensor loss = wrapper->run([&] { return forward(*model, rank(), step); });
        loss.backward();
      } else {
        wrapper->run([&] { return forward(*model, rank(), step); }).backward();
      }
      expect_gradients(*model, average_gradients(alone, size(), [&](int r) { return forward(alone, r, step); }), 1e-13);
    }
  }
}

// Case 69.
TEST_F(StaticGraphTest, TrainsAlikeThroughAnyReturnType) {
  const auto train = [&](const ReducerOptions& options, const auto& box, const auto& unbox) {
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, {.reducer = options});
    for (int step = 0; step < 6; ++step) {
      const batch::Batch batch = batch_of(rank(), step, kWidths);
      drop_gradients(*model);
      const auto boxed = wrapper->run([&] {
        const at::Tensor hidden = run_some(*model, 2, batch.input());
        return box(hidden, model->run(2, hidden));
      });
      const auto [hidden, output] = unbox(boxed);
      (hidden.square().mean() + (output - batch.target()).square().mean()).backward();
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.125);
    }
    return values_of(*model);
  };
  const auto compare = [&](const auto& box, const auto& unbox) {
    expect_equal(train(kIsStatic, box, unbox), train({}, box, unbox));
  };
  using T = at::Tensor;
  using Map = std::map<std::string, T>;
  using Nested = std::vector<std::pair<Map, std::tuple<T, int>>>;
  compare([](T a, T b) { return std::tuple(a, 3, b); },
          [](const auto& boxed) { return std::pair(std::get<0>(boxed), std::get<2>(boxed)); });
  compare(
      [](T a, T b) {
        return std::vector<T>{a, b};
      },
      [](const auto& boxed) { return std::pair(boxed[0], boxed[1]); });
  compare(
      [](T a, T b) {
        return Map{{"a", a}, {"b", b}};
      },
      [](const auto& boxed) { return std::pair(boxed.at("a"), boxed.at("b")); });
  compare(
      [](T a, T b) {
        return Nested{{{{"a", a}}, {b, 1}}};
      },
      [](const auto& boxed) { return std::pair(boxed[0].first.at("a"), std::get<0>(boxed[0].second)); });
}

}  // namespace static_graph_test
}  // namespace lockstep::parallel
