// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/gradient_sink.hpp"

#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/types.h>

#include <stdexcept>

namespace lockstep::models {
namespace gradient_sink_test {

/// A parameter twice: once as autograd treats it, once with a sink. Both have the same values.
struct Twins {
  Twins(std::initializer_list<std::int64_t> shape) : plain(torch::randn(shape)), sunk(plain.clone()) {
    plain.requires_grad_();
    sunk.requires_grad_();
    view = torch::full(shape, 1e30);  // earlier content of the memory must not matter
    attach_sink(sunk, view);
  }
  ~Twins() { detach_sink(sunk); }

  bool is_in_sink() const { return sunk.grad().is_same(view); }
  bool agree() const { return is_in_sink() && at::equal(plain.grad(), view); }
  bool nearly_agree() const { return is_in_sink() && at::allclose(plain.grad(), view, 1e-5, 1e-6); }

  at::Tensor plain;
  at::Tensor sunk;
  at::Tensor view;
};

/// Calls `use` for the plain and for the sunk tensors.
template <class Use>
void for_both(const Use& use) {
  use([](const Twins& twins) { return twins.plain; });
  use([](const Twins& twins) { return twins.sunk; });
}

class GradientSinkTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1); }
};

TEST_F(GradientSinkTest, LinearGivesTheBitsOfThePlainPath) {
  const std::vector<std::vector<std::int64_t>> shapes = {{6}, {5, 6}, {2, 5, 6}, {2, 2, 3, 6}, {0, 6}};
  for (const bool has_bias : {false, true}) {
    for (const std::vector<std::int64_t>& shape : shapes) {
      const Twins weight{4, 6};
      const Twins bias{4};
      const at::Tensor values = torch::randn(shape);
      std::vector<at::Tensor> outputs;
      std::vector<at::Tensor> input_gradients;
      for_both([&](const auto& twin_of) {
        at::Tensor input = values.clone().requires_grad_();
        const at::Tensor output = models::linear(input, twin_of(weight), has_bias ? twin_of(bias) : at::Tensor());
        output.square().sum().backward();
        outputs.push_back(output);
        input_gradients.push_back(input.grad());
      });
      EXPECT_TRUE(weight.agree()) << at::IntArrayRef(shape);
      EXPECT_EQ(bias.agree(), has_bias) << at::IntArrayRef(shape);
      EXPECT_TRUE(at::equal(outputs[0], outputs[1])) << at::IntArrayRef(shape);
      EXPECT_TRUE(at::equal(input_gradients[0], input_gradients[1])) << at::IntArrayRef(shape);
    }
  }
}

TEST_F(GradientSinkTest, LinearTakesInputsOfAnyLayout) {
  const Twins weight{4, 6};
  const Twins bias{4};
  const at::Tensor two = torch::randn({6, 5});
  const at::Tensor three = torch::randn({5, 2, 6});
  for_both([&](const auto& twin_of) {
    models::linear(two.t(), twin_of(weight), twin_of(bias)).square().sum().backward();
    models::linear(three.transpose(0, 1), twin_of(weight), twin_of(bias)).square().sum().backward();
  });
  EXPECT_TRUE(weight.nearly_agree());  // other GEMM calls: sums of six to ten terms in another order
  EXPECT_TRUE(bias.nearly_agree());
}

TEST_F(GradientSinkTest, EmbeddingGivesTheBitsOfThePlainPath) {
  for (const at::ScalarType type : {at::kLong, at::kInt}) {
    const Twins weight{7, 40};
    const at::Tensor tokens = torch::tensor({{1, 6, 1, 1}, {0, 1, 6, 2}}).to(type);
    for_both([&](const auto& twin_of) { models::embedding(tokens, twin_of(weight)).square().sum().backward(); });
    EXPECT_TRUE(weight.agree());
    EXPECT_EQ(weight.view[3].abs().sum().item<float>(), 0.0F);  // a token that does not occur
  }
}

TEST_F(GradientSinkTest, LaterUsesAdd) {
  const Twins weight{7, 6};
  const Twins bias{7};
  const at::Tensor tokens = torch::tensor({{1L, 6L, 1L}, {0L, 1L, 2L}});
  const auto tied = [&](const auto& twin_of) {
    const at::Tensor hidden = models::embedding(tokens, twin_of(weight)).tanh();
    const at::Tensor ordinary = at::linear(hidden.flatten(0, 1), twin_of(weight));  // autograd accumulates this use
    (models::linear(hidden, twin_of(weight), twin_of(bias)).square().sum() + ordinary.sum()).backward();
  };
  for_both(tied);
  EXPECT_TRUE(weight.nearly_agree());
  for_both(tied);  // a second backward accumulates
  EXPECT_TRUE(weight.nearly_agree());
  EXPECT_TRUE(bias.nearly_agree());
  for (const at::Tensor& parameter : {weight.plain, weight.sunk, bias.plain, bias.sunk}) parameter.grad().zero_();
  for_both(tied);
  EXPECT_TRUE(weight.nearly_agree());
  for (const at::Tensor& parameter : {weight.plain, weight.sunk, bias.plain, bias.sunk}) {
    parameter.mutable_grad().reset();
  }
  for_both(tied);
  EXPECT_TRUE(weight.nearly_agree());
  EXPECT_TRUE(bias.nearly_agree());
}

TEST_F(GradientSinkTest, AnOrdinaryUseMayComeFirstInAnotherBackward) {
  const Twins weight{4, 6};
  const at::Tensor input = torch::randn({3, 6});
  for_both([&](const auto& twin_of) {
    at::linear(input, twin_of(weight)).sum().backward();  // makes a `.grad` that is not the view
    models::linear(input, twin_of(weight), {}).square().sum().backward();
  });
  EXPECT_FALSE(weight.is_in_sink());
  EXPECT_TRUE(at::allclose(weight.plain.grad(), weight.sunk.grad()));
}

TEST_F(GradientSinkTest, AccumulatorsStillFireOnce) {
  struct Count : torch::autograd::FunctionPostHook {
    explicit Count(int& calls) : calls_(calls) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      ++calls_;
      return outputs;
    }
    int& calls_;
  };
  const Twins weight{6, 6};
  int calls = 0;
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight.sunk);
  accumulator->add_post_hook(std::make_unique<Count>(calls));
  const at::Tensor input = torch::randn({3, 6});
  models::linear(models::linear(input, weight.sunk, {}), weight.sunk, {}).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(weight.is_in_sink());
}

TEST_F(GradientSinkTest, ExplicitInputsGetTheirGradients) {
  const Twins weight{4, 6};
  const Twins table{7, 6};
  const at::Tensor tokens = torch::tensor({1L, 6L, 1L});
  std::vector<torch::autograd::variable_list> gradients;
  for_both([&](const auto& twin_of) {
    const at::Tensor loss =
        models::linear(models::embedding(tokens, twin_of(table)), twin_of(weight), {}).square().sum();
    gradients.push_back(torch::autograd::grad({loss}, {twin_of(weight), twin_of(table)}, {}, /*retain_graph=*/true));
    EXPECT_FALSE(twin_of(weight).grad().defined());
    EXPECT_FALSE(twin_of(table).grad().defined());
    loss.backward({}, {}, false, std::vector<at::Tensor>{twin_of(weight)});  // accumulates into weight alone
    EXPECT_FALSE(twin_of(table).grad().defined());
  });
  for (const std::size_t i : {0, 1}) EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i]));
  EXPECT_TRUE(at::equal(weight.plain.grad(), weight.sunk.grad()));
}

TEST_F(GradientSinkTest, SecondDerivativesAreThoseOfThePlainPath) {
  const Twins weight{4, 6};
  const Twins bias{4};
  const Twins table{7, 6};
  const at::Tensor tokens = torch::tensor({1L, 6L, 1L});
  for_both([&](const auto& twin_of) {
    const at::Tensor loss =
        models::linear(models::embedding(tokens, twin_of(table)), twin_of(weight), twin_of(bias)).pow(3).sum();
    const auto first = torch::autograd::grad({loss}, {twin_of(weight), twin_of(bias), twin_of(table)}, {}, true, true);
    (first[0].square().sum() + first[1].square().sum() + first[2].square().sum()).backward();
  });
  for (const Twins* twins : {&weight, &bias, &table}) {
    EXPECT_TRUE(at::allclose(twins->plain.grad(), twins->sunk.grad(), 1e-4, 1e-4));
  }
}

TEST_F(GradientSinkTest, CreateGraphKeepsGradientsThatHaveAHistory) {
  struct Silence : c10::WarningHandler {  // LibTorch warns of the cycle
    void process(const c10::Warning&) override {}
  } silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  const Twins weight{4, 6};
  models::linear(torch::randn({3, 6}), weight.sunk, {}).pow(3).sum().backward({}, true, /*create_graph=*/true);
  EXPECT_TRUE(weight.sunk.grad().requires_grad());
  weight.sunk.mutable_grad().reset();  // breaks the cycle
}

TEST_F(GradientSinkTest, AutocastComputesAsWithoutSinks) {
  const Twins weight{4, 6};
  const Twins bias{4};
  const at::Tensor input = torch::randn({3, 6});
  for_both([&](const auto& twin_of) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor output = models::linear(input, twin_of(weight), twin_of(bias));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    output.sum().backward();
  });
  EXPECT_TRUE(at::equal(weight.plain.grad(), weight.sunk.grad()));
  EXPECT_TRUE(at::equal(bias.plain.grad(), bias.sunk.grad()));
}

TEST_F(GradientSinkTest, HooksOnTheParameterSeeTheGradient) {
  const Twins weight{4, 6};
  at::Tensor seen;
  weight.sunk.register_hook([&](const at::Tensor& gradient) { seen = gradient.clone(); });
  models::linear(torch::randn({3, 6}), weight.sunk, {}).sum().backward();
  EXPECT_TRUE(at::equal(seen, weight.sunk.grad()));
}

TEST_F(GradientSinkTest, TrainingSwitchedOffLeavesTheSinkAlone) {
  const Twins weight{4, 6};
  const at::Tensor loss = models::linear(torch::randn({3, 6}).requires_grad_(), weight.sunk, {}).sum();
  weight.sunk.requires_grad_(false);
  loss.backward();
  EXPECT_FALSE(weight.sunk.grad().defined());
  EXPECT_EQ(weight.view.min().item<float>(), 1e30F);
}

TEST_F(GradientSinkTest, OnlyTheParameterItselfHasTheSink) {
  const Twins weight{4, 6};
  EXPECT_EQ(sink_of(weight.plain), nullptr);
  EXPECT_EQ(sink_of(weight.sunk.detach()), nullptr);
  at::Tensor other = torch::zeros({4, 6});
  other.set_data(weight.sunk);
  EXPECT_EQ(sink_of(other), nullptr);
  ASSERT_NE(sink_of(weight.sunk), nullptr);
  detach_sink(weight.sunk);
  EXPECT_EQ(sink_of(weight.sunk), nullptr);
}

TEST_F(GradientSinkTest, ViewsThatDoNotFitAreRefused) {
  const at::Tensor leaf = torch::zeros({4, 6}).requires_grad_();
  EXPECT_THROW(attach_sink(leaf, torch::zeros({6, 4})), std::logic_error);
  EXPECT_THROW(attach_sink(leaf, torch::zeros({6, 4}).t()), std::logic_error);
  EXPECT_THROW(attach_sink(leaf, torch::zeros({4, 6}, at::kDouble)), std::logic_error);
  EXPECT_THROW(attach_sink(leaf * 2, torch::zeros({4, 6})), std::logic_error);
  EXPECT_THROW(attach_sink(torch::zeros({4, 6}), torch::zeros({4, 6})), std::logic_error);
}

TEST_F(GradientSinkTest, LayersPassTheirParameters) {
  Linear layer(6, 4);
  Embedding table(7, 6);
  for (const at::Tensor& parameter : {layer.weight, layer.bias, table.weight}) {
    attach_sink(parameter, torch::empty_like(parameter));
  }
  run(layer, run(table, torch::tensor({1L, 6L}))).sum().backward();
  for (const at::Tensor& parameter : {layer.weight, layer.bias, table.weight}) {
    EXPECT_TRUE(parameter.grad().is_same(sink_of(parameter)->view));
  }
  EXPECT_TRUE(at::equal(layer.bias.grad(), torch::full({4}, 2.0)));
}

TEST_F(GradientSinkTest, AGptGetsTheSameGradients) {
  Section options = Section::with_defaults("model", model_keys());
  for (const auto& [key, value] : {std::pair{"name", "gpt"}, {"depth", "2"}, {"embed_dim", "32"}, {"bias", "true"}}) {
    options.set(key, value, "test");
  }
  const Task task{.sample_shape = {8}, .classes = 11, .predictions_per_sample = 8, .is_text = true};
  const auto plain = build(options, task, 1, at::kFloat);
  const auto sunk = build(options, task, 1, at::kFloat);
  for (const at::Tensor& parameter : sunk->parameters()) attach_sink(parameter, torch::full_like(parameter, 1e30));
  for (int pass = 0; pass < 2; ++pass) {  // the second one accumulates
    const at::Tensor tokens = torch::randint(11, {3, 8}, at::kLong);
    for (const auto& model : {plain, sunk}) cross_entropy(run(*model, tokens), tokens).backward();
  }
  int in_sink = 0;
  for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
    const at::Tensor parameter = sunk->parameters()[i];
    EXPECT_TRUE(at::allclose(plain->parameters()[i].grad(), parameter.grad(), 1e-4, 1e-6));
    in_sink += parameter.grad().is_same(sink_of(parameter)->view) ? 1 : 0;
  }
  EXPECT_EQ(in_sink, 2 + 2 * 4 * 2);  // embeddings, and the linear layers' weights and biases
}

}  // namespace gradient_sink_test
}  // namespace lockstep::models
