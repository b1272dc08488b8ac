// SPDX-License-Identifier: BSD-3-Clause
// Parameters that a step does not use: none is not zero, and whoever is missing is named.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/embedding.h>

#include "parallel/store/reducer.hpp"
#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace unused_test {

using UnusedTest = ParallelTest;
using MissingTest = ParallelTest;

const std::vector<std::int64_t> kWidths = {3, 4, 2};
const ReducerOptions kFindsUnused = {.finds_unused = true};
const ReducerOptions kIsStatic = {.has_static_graph = true};

/// Layers beside each other, each from 3 to 2; a forward adds up those that it uses.
class Tasks : public Layers {
 public:
  Tasks() : Layers({3, 2, 3, 2, 3, 2}) {}

  static constexpr std::size_t kA = 0;
  static constexpr std::size_t kB = 2;
  static constexpr std::size_t kC = 4;

  at::Tensor use(const std::vector<std::size_t>& tasks, const at::Tensor& input) {
    at::Tensor sum = torch::zeros({input.size(0), 2}, at::kDouble);
    for (const std::size_t task : tasks) sum = sum + run(task, input);
    return sum;
  }
  /// The two layers between the tasks are never used.
  void freeze_others() {
    for (const std::size_t other : {1, 3}) {
      for (const auto& parameter : layers[other]->parameters()) parameter.set_requires_grad(false);
    }
  }
};

using Use = std::function<std::vector<std::size_t>(int rank, int step)>;

/// Trains `steps` steps and compares every gradient with what one process gets.
void expect_averages(DistributedDataParallel& wrapper, Tasks& model, int rank, int ranks, const Use& use, int steps) {
  Tasks alone;
  alone.freeze_others();
  const auto loss = [&](Tasks& layers, int r, int step) {
    const batch::Batch batch = batch_of(r, step, {3, 2});
    return (layers.use(use(r, step), batch.input()) - batch.target()).square().mean();
  };
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    drop_gradients(model);
    wrapper.run([&] { return loss(model, rank, step); }).backward();
    expect_gradients(model, average_gradients(alone, ranks, [&](int r) { return loss(alone, r, step); }));
  }
}

// Cases 50 and 51.
TEST_F(UnusedTest, ParametersGetTheAverageWhereverAnyRankUsesThem) {
  const Use one_each = [](int r, int) { return std::vector<std::size_t>{r % 2 == 0 ? Tasks::kA : Tasks::kB}; };
  const Use one_or_both = [](int r, int) {
    return r % 2 == 0 ? std::vector<std::size_t>{Tasks::kA, Tasks::kB} : std::vector<std::size_t>{Tasks::kA};
  };
  for (const ReducerOptions& options : {kFindsUnused, kIsStatic}) {
    for (const Use& use : {one_each, one_or_both}) {
      auto model = std::make_shared<Tasks>();
      model->freeze_others();
      const auto wrapper = wrap(model, {.reducer = options});
      expect_averages(*wrapper, *model, rank(), size(), use, 3);
      EXPECT_TRUE(model->layers[Tasks::kA]->weight.grad().defined());
      EXPECT_FALSE(model->layers[Tasks::kC]->weight.grad().defined());
    }
  }
}

/// How many ranks used the tasks in the last step, read from their weights.
std::vector<int> uses_of(DistributedDataParallel& wrapper) {
  const std::vector<int> counts = report_of(wrapper.reducer()).use_counts;
  return {counts.at(0), counts.at(2), counts.at(4)};
}

// Cases 52 and 53.
TEST_F(UnusedTest, TheUsersOfEachParameterAreCounted) {
  const Use same = [](int, int step) {
    return step % 2 == 0 ? std::vector<std::size_t>{Tasks::kA} : std::vector<std::size_t>{Tasks::kA, Tasks::kB};
  };
  const Use only_on_rank_1 = [](int r, int step) {
    return step % 2 == 1 && r == 1 ? std::vector<std::size_t>{Tasks::kA, Tasks::kB}
                                   : std::vector<std::size_t>{Tasks::kA};
  };
  for (const bool is_same : {true, false}) {
    auto model = std::make_shared<Tasks>();
    model->freeze_others();
    const auto wrapper = wrap(model, {.reducer = kFindsUnused});
    for (int step = 0; step < 6; ++step) {
      expect_averages(
          *wrapper, *model, rank(), size(),
          [&](int r, int) { return is_same ? same(r, step) : only_on_rank_1(r, step); }, 1);
      if (size() == 1) continue;  // nothing is counted
      EXPECT_EQ(uses_of(*wrapper), (std::vector<int>{size(), step % 2 == 0 ? 0 : (is_same ? size() : 1), 0}));
    }
  }
}

// Case 60: other graphs on every rank, found in every step or learned once.
TEST_F(UnusedTest, FindingAndLearningTheGraphTrainAlike) {
  const auto train = [&](const ReducerOptions& options) {
    auto model = std::make_shared<Tasks>();
    const auto wrapper = wrap(model, {.reducer = options});
    const std::vector<std::size_t> mine = rank() == 0 ? std::vector{Tasks::kA, Tasks::kB} : std::vector{Tasks::kA};
    for (int step = 0; step < 10; ++step) {
      const batch::Batch batch = batch_of(rank(), step, {3, 2});
      drop_gradients(*model);
      wrapper->run([&] { return (model->use(mine, batch.input()) - batch.target()).square().mean(); }).backward();
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) {
        if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.125);
      }
    }
    EXPECT_EQ(report_of(wrapper->reducer()).is_rebuilt, options.has_static_graph && size() > 1);
    return values_of(*model);
  };
  expect_equal(train(kFindsUnused), train(kIsStatic));
}

// Case 61.
TEST_F(UnusedTest, ItIsSaidWhetherAStaticGraphWouldDo) {
  for (const bool alternates : {false, true}) {
    auto model = std::make_shared<Tasks>();
    model->freeze_others();
    const auto wrapper = wrap(model, {.reducer = kFindsUnused});
    expect_averages(
        *wrapper, *model, rank(), size(),
        [&](int, int step) { return std::vector<std::size_t>{alternates && step % 2 == 1 ? Tasks::kB : Tasks::kA}; },
        6);
    EXPECT_EQ(report_of(wrapper->reducer()).could_be_static, !alternates || size() == 1);
  }
}

// Case 58: gradients are not dropped in between, so the unused branch keeps what it had to the last bit.
TEST_F(UnusedTest, AnOutputThatTheLossIgnoresLeavesItsBranchAsItWas) {
  for (const bool is_map : {false, true}) {
    auto model = std::make_shared<Tasks>();
    model->freeze_others();
    Tasks alone;
    alone.freeze_others();
    const auto wrapper = wrap(model, {.reducer = kFindsUnused});
    const auto outputs = [&](const at::Tensor& input) {
      using Map = std::map<std::string, at::Tensor>;
      if (is_map) {
        const auto boxed = wrapper->run([&] {
          return Map{{"a", model->use({Tasks::kA}, input)}, {"b", model->use({Tasks::kB}, input)}};
        });
        return std::pair(boxed.at("a"), boxed.at("b"));
      }
      return wrapper->run([&] { return std::pair(model->use({Tasks::kA}, input), model->use({Tasks::kB}, input)); });
    };
    std::vector<at::Tensor> expected(10);
    std::vector<at::Tensor> saved;
    for (int step = 0; step < 6; ++step) {
      const bool uses_a = step > 0 && step < 3;  // not the first time, then twice, then no more
      const auto input = [step](int r) { return eighths({2, 3}, 3 * step + r); };
      const auto [a, b] = outputs(input(rank()));
      (uses_a ? a.square().sum() + b.square().sum() : b.square().sum()).backward();
      const auto of_step = average_gradients(alone, size(), [&](int r) {
        const at::Tensor loss = alone.use({Tasks::kB}, input(r)).square().sum();
        return uses_a ? alone.use({Tasks::kA}, input(r)).square().sum() + loss : loss;
      });
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (of_step[i].defined()) expected[i] = expected[i].defined() ? expected[i] + of_step[i] : of_step[i];
      }
      expect_gradients(*model, expected, 1e-13);
      if (step == 2) saved = gradients_of(*model);
      if (step < 3) continue;
      expect_equal({gradients_of(*model)[0], gradients_of(*model)[1]}, {saved[0], saved[1]});
    }
  }
}

struct NoGradient : torch::autograd::Function<NoGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    return {at::Tensor()};
  }
};

// Case 59: all hooks fire, none with a gradient. Nobody is missing, and none is not zero.
TEST_F(UnusedTest, AnUndefinedGradientStaysUndefined) {
  for (const ReducerOptions& options : {ReducerOptions{}, kFindsUnused, kIsStatic}) {
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, {.reducer = options});
    for (int step = 0; step < 3; ++step) {
      const batch::Batch batch = batch_of(rank(), step, kWidths);
      NoGradient::apply(models::total_loss(model->losses(wrapper->forward(batch.input()), batch.target()))).backward();
      expect_gradients(*model, std::vector<at::Tensor>(4));
    }
  }
}

// A rank whose loss uses no parameter at all completes its step manually; the update of train_step would do it, too.
TEST_F(UnusedTest, ARankMayUseNothing) {
  for (const ReducerOptions& options : {kFindsUnused, kIsStatic}) {
    auto model = std::make_shared<Layers>(kWidths);
    Layers alone(kWidths);
    const auto wrapper = wrap(model, {.reducer = options});
    const at::Tensor own = torch::ones({2}, at::kDouble).requires_grad_();
    for (int step = 0; step < 3; ++step) {
      const auto loss = [&](Layers& layers, int r) {
        const batch::Batch batch = batch_of(r, step, kWidths);
        return r == size() - 1 && r > 0
                   ? own.sum()
                   : models::total_loss(layers.losses(layers.forward(batch.input()), batch.target()));
      };
      drop_gradients(*model);
      wrapper->run([&] { return loss(*model, rank()); }).backward();
      wrapper->reducer().finish();
      expect_gradients(*model, average_gradients(alone, size(), [&](int r) { return loss(alone, r); }));
    }
  }
}

// A tensor that forward returns may be a parameter itself.
TEST_F(UnusedTest, AReturnedParameterIsUsed) {
  for (const ReducerOptions& options : {kFindsUnused, kIsStatic}) {
    auto model = std::make_shared<Layers>(kWidths);
    Layers alone(kWidths);
    const auto wrapper = wrap(model, {.reducer = options});
    const auto outputs = [](Layers& layers, int r, int step) {
      return std::pair(layers.run(0, batch_of(r, step, kWidths).input()), layers.layers[1]->bias);
    };
    const auto loss = [](const std::pair<at::Tensor, at::Tensor>& from, int r) {
      return from.first.sum() + (r + 1) * from.second.square().sum();
    };
    for (int step = 0; step < 3; ++step) {
      drop_gradients(*model);
      loss(wrapper->run([&] { return outputs(*model, rank(), step); }), rank()).backward();
      expect_gradients(*model,
                       average_gradients(alone, size(), [&](int r) { return loss(outputs(alone, r, step), r); }));
    }
  }
}

// A sparse gradient that no rank used stays, too.
TEST_F(UnusedTest, AStaleSparseGradientStays) {
  struct Model : models::Model {
    Model() {
      table = std::dynamic_pointer_cast<torch::nn::EmbeddingImpl>(
          torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true)).ptr());
      register_module("table", table);
      head = register_module("head", std::make_shared<Linear>(2, 2));
    }
    at::Tensor forward(const at::Tensor& input) override { return models::run(*head, input); }
    std::shared_ptr<torch::nn::EmbeddingImpl> table;
    std::shared_ptr<Linear> head;
  };
  auto model = std::make_shared<Model>();
  const auto wrapper = wrap(model, {.reducer = kFindsUnused});
  const at::Tensor tokens = torch::tensor({0, rank() + 1}, at::kLong);
  wrapper->run([&] { return (model->forward(model->table->forward(tokens)) / 3).sum(); }).backward();
  const at::Tensor before = model->table->weight.grad().to_dense();
  EXPECT_TRUE(is_same_everywhere(before));
  wrapper->run([&] { return model->forward(torch::ones({2, 2})).sum(); }).backward();
  EXPECT_TRUE(at::equal(model->table->weight.grad().to_dense(), before));
}

// Case 54. Upstream says so when the next forward begins; here it is said as soon as the step is completed, by all.
TEST_F(MissingTest, AreNamedWhenTheNextForwardBegins) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model);
  const batch::Batch batch = batch_of(rank(), 0, kWidths);
  const auto first_layer = [&] { return model->run(0, batch.input()).sum(); };
  EXPECT_EQ(refusal([&] { wrapper->run(first_layer).backward(); }), "");
  const std::string text = refusal([&] { wrapper->run(first_layer); });
  std::string ranks = "0";
  for (int r = 1; r < size(); ++r) ranks += ", " + std::to_string(r);
  EXPECT_EQ(
      text,
      "ddp: the previous reduction cannot be finished: no gradient for 'l1.weight' (index 2) on ranks " + ranks +
          "; 'l1.bias' (index 3) on ranks " + ranks +
          "; all outputs of forward must contribute to the loss on every rank; set ddp.find_unused_parameters=true if "
          "the loss does not use every parameter, or set requires_grad=false for parameters that are not trained");
}

// Case 54.
TEST_F(MissingTest, AreNamedOnEveryRankWhenTheUpdateBegins) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  for (const bool shares : {false, true}) {
    auto model = std::make_shared<Tasks>();
    model->freeze_others();
    const auto wrapper = wrap(model, {.shares_parameters = shares});
    auto optimizer = make_optimizer(wrapper->parameters(), {{"name", "sgd"}, {"momentum", "0.5"}});
    const auto step = [&](bool uses_c) {
      const batch::Batch batch = batch_of(rank(), 0, {3, 2});
      const std::vector<std::size_t> tasks =
          uses_c ? std::vector{Tasks::kA, Tasks::kB, Tasks::kC} : std::vector{Tasks::kA, Tasks::kB};
      optimizer.update_params(wrapper->run([&] { return model->use(tasks, batch.input()).square().mean(); }));
    };
    for (const int failing_step : {0, 3}) {
      const std::vector<at::Tensor> before = values_of(*model);
      try {
        step(/*uses_c=*/!is_last());
        ADD_FAILURE() << "nothing was refused";
      } catch (const ConfigError& error) {
        EXPECT_TRUE(error.is_agreed());
        const std::string last = std::to_string(size() - 1);
        EXPECT_TRUE(contains(error.what(), "no gradient for 'l4.weight' (index 4) on rank " + last +
                                               "; 'l4.bias' (index 5) on rank " + last + "; all outputs"))
            << error.what();
      }
      expect_equal(values_of(*model), before);
      // All ranks can continue, also into the new buckets of the second step that succeeds.
      optimizer.reset();
      wrapper->parameters().drop_gradients();
      for (int i = 0; i < 3; ++i) step(true);
      for (const auto& parameter : model->parameters()) EXPECT_TRUE(is_same_everywhere(parameter)) << failing_step;
    }
    EXPECT_TRUE(report_of(wrapper->reducer()).is_rebuilt);
  }
}

// Case 54: with the search on, an output that the loss ignores is no fault. A graph behind no output is.
TEST_F(MissingTest, AreNamedWhereTheSearchCouldNotSeeThem) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  auto model = std::make_shared<Tasks>();
  model->freeze_others();
  const auto wrapper = wrap(model, {.reducer = kFindsUnused});
  const at::Tensor input = torch::ones({1, 3}, at::kDouble);
  // The first forward's output decides, but only the second one's is in the loss.
  const at::Tensor loss = wrapper->run([&] { return model->use({Tasks::kA}, input).sum(); });
  wrapper->run([&] { return model->use({Tasks::kA, Tasks::kB}, input).sum(); });
  loss.backward();
  const std::string text = refusal([&] { wrapper->reducer().finish(); });
  EXPECT_TRUE(contains(text, "no gradient for 'l2.weight' (index 2) on ranks 0, 1")) << text;
  EXPECT_TRUE(contains(text, "all outputs of forward must contribute to the loss")) << text;
  EXPECT_FALSE(contains(text, "ddp.find_unused_parameters")) << text;
}

// Case 55: the step that would build new buckets tells the cause, not what it cannot do without it.
TEST_F(MissingTest, AreNamedInsteadOfBuildingNewBuckets) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  auto model = std::make_shared<Layers>(kWidths);
  const auto wrapper = wrap(model, {.reducer = {.limits = {.bucket_bytes = {1}, .last_bucket_bytes = 0}}});
  const batch::Batch batch = batch_of(rank(), 0, kWidths);
  const auto loss = [&](bool is_whole) {
    return wrapper->run(
        [&] { return is_whole ? model->forward(batch.input()).sum() : model->run(0, batch.input()).sum(); });
  };
  loss(false).backward();
  EXPECT_TRUE(contains(refusal([&] { loss(true); }), "previous reduction"));
  EXPECT_FALSE(report_of(wrapper->reducer()).is_rebuilt);
  for (int step = 0; step < 3; ++step) {
    drop_gradients(*model);
    loss(true).backward();
  }
  EXPECT_EQ(report_of(wrapper->reducer()).buckets.size(), 4U);
  loss(false).backward();
  EXPECT_TRUE(contains(refusal([&] { loss(true); }), "'l1.bias' (index 3)"));
}

// Case 56.
TEST_F(MissingTest, ParametersOfAnyDepthAreNamedAndIgnoredOnesAreNot) {
  if (size() == 1) GTEST_SKIP() << "one rank averages nothing";
  struct Inner : models::Block {
    Inner() {
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)).ptr());
      register_module("linear", std::make_shared<Linear>(3, 2, /*has_bias=*/false));
    }
    at::Tensor forward(const at::Tensor& input) override { return input; }
  };
  struct Outer : models::Model {
    Outer() {
      head = register_module("head", std::make_shared<Linear>(3, 2));
      register_module("inner", std::make_shared<Inner>());
    }
    at::Tensor forward(const at::Tensor& input) override { return models::run(*head, input); }
    std::shared_ptr<Linear> head;
  };
  for (const bool ignores : {false, true}) {
    auto model = std::make_shared<Outer>();
    DdpOptions options;
    if (ignores) options.ignored = {"inner.table.weight"};
    const auto wrapper = wrap(model, options);
    wrapper->forward(torch::ones({2, 3})).sum().backward();
    const std::string text = refusal([&] { wrapper->reducer().finish(); });
    EXPECT_EQ(contains(text, "'inner.table.weight' (index 2)"), !ignores) << text;
    EXPECT_TRUE(contains(text, std::string("'inner.linear.weight' (index ") + (ignores ? "2)" : "3)"))) << text;
    EXPECT_FALSE(contains(text, "head")) << text;
  }
}

// Case 57: a layer that is run outside of forward.
TEST_F(MissingTest, AParameterThatComesAlthoughItWasCountedOutIsNamed) {
  for (const bool finds_unused : {false, true}) {
    auto model = std::make_shared<Layers>(kWidths);
    const auto wrapper = wrap(model, {.reducer = {.finds_unused = finds_unused}});
    const batch::Batch batch = batch_of(rank(), 0, kWidths);
    for (int step = 0; step < 2; ++step) {
      drop_gradients(*model);
      const at::Tensor hidden = wrapper->run([&] { return model->run(0, batch.input()); });
      const std::string text = refusal([&] { model->run(1, hidden).sum().backward(); });
      if (!finds_unused || size() == 1) {
        EXPECT_EQ(text, "");
        EXPECT_TRUE(is_same_everywhere(model->layers[1]->weight.grad()));
        continue;
      }
      const bool is_weight = contains(text, "parameter at index 2 ('l1.weight')");
      EXPECT_TRUE(is_weight || contains(text, "parameter at index 3 ('l1.bias')")) << text;
      EXPECT_TRUE(contains(text, "can be marked ready only once")) << text;
      wrapper->reset_state();
    }
  }
}

}  // namespace unused_test
}  // namespace lockstep::parallel
