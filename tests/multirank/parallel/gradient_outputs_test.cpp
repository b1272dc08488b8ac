// SPDX-License-Identifier: BSD-3-Clause
// What backward leaves in `.grad`, whatever forward returns and however often it is called.
#include <lockstep/models/functional.hpp>

#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace gradient_outputs_test {

using GradientOutputsTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 2};

// Cases 38 and 39.
TEST_F(GradientOutputsTest, ComeWhereForwardReturnsTensorsWithoutGradient) {
  for (const bool finds_unused : {false, true}) {
    for (const bool is_static : {false, true}) {
      auto model = std::make_shared<Layers>(kWidths);
      Layers alone(kWidths);
      const auto wrapper = wrap(model, {.reducer = {.finds_unused = finds_unused, .has_static_graph = is_static}});
      for (int step = 0; step < 6; ++step) {
        const batch::Batch batch = batch_of(rank(), step, kWidths);
        const at::Tensor made = torch::ones({2});
        drop_gradients(*model);
        const auto [detached, live, created] = wrapper->run([&] {
          const at::Tensor output = model->forward(batch.input());
          return std::tuple(output.detach(), output, made);
        });
        EXPECT_FALSE(detached.requires_grad());
        EXPECT_TRUE(at::equal(detached, live));
        EXPECT_TRUE(created.is_same(made));
        EXPECT_FALSE(created.requires_grad());
        EXPECT_EQ(created.grad_fn(), nullptr);
        models::total_loss(model->losses(live, batch.target())).backward();
        expect_gradients(*model, average_gradients(alone, size(),
                                                   [&](int r) { return loss_of(alone, batch_of(r, step, kWidths)); }));
      }
    }
  }
}

// Case 40: a forward with other values instead of the module's.
TEST_F(GradientOutputsTest, OfSubstitutesStayOnThem) {
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model);
  for (int step = 0; step < 2; ++step) {
    const batch::Batch batch = batch_of(rank(), step, {3, 4});
    const at::Tensor weight = eighths({4, 3}, 1).requires_grad_();
    const at::Tensor output = wrapper->run([&] { return models::linear(batch.input(), weight, at::Tensor()); });
    output.sum().backward();
    EXPECT_TRUE(at::equal(weight.grad(), batch.input().sum(0).expand({4, 3})));
    expect_gradients(*model, std::vector<at::Tensor>(4));
  }
  // The wrapper still works.
  loss_of(*model, batch_of(rank(), 0, kWidths));
  const batch::Batch batch = batch_of(rank(), 0, kWidths);
  models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target())).backward();
  EXPECT_TRUE(is_same_everywhere(model->layers[0]->weight.grad()));
}

/// An output type of a user's own.
struct Pair {
  std::string name;
  at::Tensor head;
  at::Tensor tail;
};

}  // namespace gradient_outputs_test

template <>
struct OutputTraits<gradient_outputs_test::Pair> {
  template <class Visit>
  static void visit(gradient_outputs_test::Pair& value, const Visit& visit) {
    visit_tensors(value.head, visit);
    visit_tensors(value.tail, visit);
  }
};

namespace gradient_outputs_test {

/// Runs three layers, boxes (hidden, output), and takes the output out again.
template <class Box, class Unbox>
void expect_boxed(DistributedDataParallel& wrapper, Layers& model, Layers& alone, int rank, int ranks, const Box& box,
                  const Unbox& unbox) {
  const std::vector<std::int64_t> widths = {3, 4, 4, 2};
  for (int step = 0; step < 2; ++step) {
    const auto batch = [&](int r) { return batch_of(r, step, widths); };
    drop_gradients(model);
    const auto boxed = wrapper.run([&] {
      const at::Tensor hidden = at::relu(model.run(1, at::relu(model.run(0, batch(rank).input()))));
      return box(at::softmax(hidden, 1), at::softmax(model.run(2, hidden), 1));
    });
    (unbox(boxed) - batch(rank).target()).square().mean().backward();
    expect_gradients(model, average_gradients(alone, ranks, [&](int r) {
                       const at::Tensor hidden = at::relu(alone.run(1, at::relu(alone.run(0, batch(r).input()))));
                       return (at::softmax(alone.run(2, hidden), 1) - batch(r).target()).square().mean();
                     }));
  }
}

// Case 41, in every mode.
TEST_F(GradientOutputsTest, ComeThroughAnyReturnType) {
  using Tensors = std::vector<at::Tensor>;
  using Mixed = std::tuple<int, at::Tensor, std::string, at::Tensor>;
  using Map = std::map<std::string, at::Tensor>;
  using Nested = std::pair<std::optional<at::Tensor>, std::vector<std::map<int, std::pair<at::Tensor, double>>>>;
  for (const ReducerOptions& options :
       {ReducerOptions{}, ReducerOptions{.finds_unused = true}, ReducerOptions{.has_static_graph = true}}) {
    const auto check = [&](const auto& box, const auto& unbox) {
      auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 4, 4, 2});
      Layers alone({3, 4, 4, 2});
      const auto wrapper = wrap(model, {.reducer = options});
      expect_boxed(*wrapper, *model, alone, rank(), size(), box, unbox);
    };
    using T = at::Tensor;
    check([](T a, T b) { return std::array<T, 2>{a, b}; }, [](const auto& boxed) { return boxed[1]; });
    check([](T a, T b) { return Tensors{a, b}; }, [](const auto& boxed) { return boxed[1]; });
    check([](T a, T b) { return Mixed{1, a, "text", b}; }, [](const auto& boxed) { return std::get<3>(boxed); });
    check([](T a, T b) { return Map{{"a", a}, {"b", b}}; }, [](const auto& boxed) { return boxed.at("b"); });
    check(
        [](T a, T b) {
          return Nested{a, {{}, {{7, {b, 0.5}}}}};
        },
        [](const auto& boxed) { return boxed.second[1].at(7).first; });
    check([](T a, T b) { return Pair{"both", a, b}; }, [](const auto& boxed) { return boxed.tail; });
  }
}

// Case 42.
TEST_F(GradientOutputsTest, OfTwoOutputsMayComeByTwoBackwards) {
  auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 2, 3});
  Layers alone({3, 2, 3});
  const auto wrapper = wrap(model);
  for (int step = 0; step < 3; ++step) {
    const auto input = [step](int r) { return eighths({2, 3}, 3 * step + r); };
    const auto other = [step](int r) { return eighths({2, 2}, 5 * step + r); };
    drop_gradients(*model);
    auto [first, second] =
        wrapper->run([&] { return std::pair(model->run(0, input(rank())), model->run(1, other(rank()))); });
    second.square().sum().backward();
    first.square().sum().backward();
    expect_gradients(*model, average_gradients(alone, size(), [&](int r) {
      return alone.run(0, input(r)).square().sum() + alone.run(1, other(r)).square().sum();
    }));
  }
}

// Case 44.
TEST_F(GradientOutputsTest, AreNotDisturbedByForwardsWithoutBackward) {
  for (const bool finds_unused : {false, true}) {
    auto model = std::make_shared<Layers>(std::vector<std::int64_t>{3, 4, 2, 2});
    Layers alone({3, 4, 2, 2});
    if (!finds_unused) {
      for (const auto& parameter : model->layers[2]->parameters()) parameter.set_requires_grad(false);
    }
    const auto wrapper = wrap(model, {.reducer = {.finds_unused = finds_unused}});
    const auto loss = [](Layers& layers, int r, int step) {
      const batch::Batch batch = batch_of(r, step, kWidths);
      return (layers.run(1, at::tanh(layers.run(0, batch.input()))) - batch.target()).square().mean();
    };
    for (int step = 0; step < 8; ++step) {
      const at::Tensor mine = wrapper->run([&] { return loss(*model, rank(), step); });
      if (step < 4) continue;
      drop_gradients(*model);
      mine.backward();
      expect_gradients(*model, average_gradients(alone, size(), [&](int r) { return loss(alone, r, step); }));
    }
  }
}

}  // namespace gradient_outputs_test
}  // namespace lockstep::parallel
