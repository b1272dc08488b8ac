// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <new>

#include "core/system/memory.hpp"
#include "models/layers/generators.hpp"

namespace lockstep::models {
namespace models_test {

const Task kImages{.sample_shape = {1, 28, 28}, .classes = 10};
const Task kText{.sample_shape = {16}, .classes = 65, .predictions_per_sample = 16, .is_text = true};

Section section(std::initializer_list<std::pair<std::string, std::string>> values) {
  Section model = Section::with_defaults("model", model_keys());
  for (const auto& [key, text] : values) model.set(key, text, "test");
  return model;
}

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// A block whose output no machine can hold.
class HugeBlock : public Block {
  at::Tensor forward(const at::Tensor&) override { return torch::empty({std::int64_t{1} << 50}, at::kByte); }
};

TEST(ModelsTest, ALackOfMemoryIsNotReportedAsAWrongShape) {
  HugeBlock block;
  try {
    run(block, torch::zeros({1}));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
    EXPECT_EQ(dynamic_cast<const Error*>(&error), nullptr) << error.what();
  }
}

TEST(ModelsTest, ParameterCountsFollowFromTheOptions) {
  const auto mlp = build(section({{"name", "mlp"}, {"hidden", "32,16"}}), kImages, 1, at::kFloat);
  EXPECT_EQ(parameter_count(*mlp), 784 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10);
  const auto cnn = build(section({{"name", "cnn"}, {"channels", "4,8"}, {"hidden", "16"}}), kImages, 1, at::kFloat);
  EXPECT_EQ(parameter_count(*cnn), 4 * 9 + 4 + 4 * 8 * 9 + 8 + 8 * 49 * 16 + 16 + 16 * 10 + 10);
  const auto gpt = build(section({{"name", "gpt"}, {"embed_dim", "32"}, {"depth", "2"}}), kText, 1, at::kFloat);
  EXPECT_EQ(parameter_count(*gpt), 65 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 2 * 32) + 32);
}

TEST(ModelsTest, OutputsHaveOneRowOfLogitsForEachPrediction) {
  const auto cnn = build(section({{"name", "cnn"}}), kImages, 1, at::kDouble);
  EXPECT_EQ(run(*cnn, torch::zeros({3, 1, 28, 28}, at::kDouble)).sizes(), (std::vector<std::int64_t>{3, 10}));
  const auto gpt = build(section({{"name", "gpt"}}), kText, 1, at::kFloat);
  EXPECT_EQ(run(*gpt, torch::zeros({3, 16}, at::kLong)).sizes(), (std::vector<std::int64_t>{3, 16, 65}));
}

/// A model that says nothing but its forward.
class Plain : public Model {
 public:
  explicit Plain(TaskKind kind) { set_task_kind(kind); }
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

// Theory: the losses of outputs 0 and 2 against what each kind asks for.
TEST(ModelsTest, DefaultsGoByTheKindOfTheTask) {
  const at::Tensor scores = torch::tensor({{0.0, 2.0}}, at::kDouble);
  const auto loss = [](TaskKind kind, const at::Tensor& output, const at::Tensor& target) {
    return total_loss(Plain(kind).losses(output, target)).item<double>();
  };
  const double wrong = std::log1p(std::exp(2.0));  // -log of the softmax of the first
  EXPECT_NEAR(loss(TaskKind::classification, scores, torch::tensor({0L})), wrong, 1e-12);
  EXPECT_NEAR(loss(TaskKind::language, scores.view({1, 1, 2}), torch::tensor({{0L}})), wrong, 1e-12);
  EXPECT_NEAR(loss(TaskKind::segmentation, scores.view({1, 2, 1, 1}), torch::zeros({1, 1, 1}, at::kLong)), wrong,
              1e-12);
  EXPECT_NEAR(loss(TaskKind::multilabel, scores, torch::tensor({{1L, 0L}})), (std::log(2.0) + wrong) / 2, 1e-12);
  EXPECT_NEAR(loss(TaskKind::regression, scores, torch::tensor({{1.0F, 4.0F}})), 2.5, 1e-12);
  const auto predicted = [](TaskKind kind, const at::Tensor& output) { return Plain(kind).predict(output); };
  EXPECT_EQ(predicted(TaskKind::classification, scores).tensor("classes").item<std::int64_t>(), 1);
  EXPECT_EQ(predicted(TaskKind::segmentation, scores.view({1, 2, 1, 1})).tensor("masks").item<std::int64_t>(), 1);
  EXPECT_TRUE(at::equal(predicted(TaskKind::multilabel, scores).tensor("labels"), torch::tensor({{false, true}})));
  EXPECT_TRUE(at::equal(predicted(TaskKind::regression, scores).tensor("values"), scores));
  EXPECT_EQ(error_of([&] { loss(TaskKind::custom, scores, scores); }),
            "the task is custom, so the model must define its losses: override losses_of");
  EXPECT_EQ(error_of([&] { predicted(TaskKind::custom, scores); }),
            "the task is custom, so the model must define its predictions: override predictions_of");
}

TEST(ModelsTest, ABatchIsTheShortFormsInputAndTarget) {
  Plain model(TaskKind::regression);
  const batch::Batch batch{torch::tensor({{1.0, 2.0}}), torch::tensor({{3.0, 2.0}})};
  const batch::Outputs outputs = run(model, batch);
  EXPECT_EQ(outputs.entries().front().first, "output");
  EXPECT_EQ(total_loss(losses_of(model, outputs, batch)).item<double>(), 2);
  EXPECT_TRUE(model.counts(batch).empty());
  class Silent : public Model {};
  Silent silent;
  EXPECT_EQ(error_of([&] { run(silent, batch); }), "model does not implement forward for one tensor");
}

TEST(ModelsTest, ALossThatLacksMemoryIsNoFaultOfTheSamples) {
  class Huge : public Plain {
   public:
    Huge() : Plain(TaskKind::custom) {}
    LossMap losses_of(const batch::Outputs&, const batch::Batch&) const override { throw std::bad_alloc(); }
  };
  const batch::Batch batch{torch::ones({2, 1})};
  EXPECT_THROW(losses_of(Huge(), {}, batch), std::bad_alloc);
}

// An exception that is thrown by anything but Lockstep is a fault of these samples.
TEST(ModelsTest, ALossThatThrowsNamesItsSamples) {
  class Throwing : public Plain {
   public:
    Throwing() : Plain(TaskKind::custom) {}
    LossMap losses_of(const batch::Outputs&, const batch::Batch&) const override {
      throw std::runtime_error("no such class");
    }
  };
  batch::Batch batch{torch::ones({2, 1})};
  batch.set_draws({{.index = 7}, {.index = 3}});
  try {
    losses_of(Throwing(), {}, batch);
    FAIL() << "taken";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "the losses of the model for samples 7, 3: no such class");
  }
}

TEST(ModelsTest, AKeyChoosesAPreprocessor) {
  const auto model = build(section({{"name", "mlp"}, {"preprocess", "image"}, {"image_mean", "2"}, {"image_std", "4"}}),
                           kImages, 1, at::kFloat);
  const batch::Batch batch = model->preprocess(batch::Batch(torch::full({1, 1, 2, 2}, 10, at::kByte)), false);
  EXPECT_TRUE(at::equal(batch.input(), torch::full({1, 1, 2, 2}, 2, at::kFloat)));
  EXPECT_EQ(error_of([] {
              build(section({{"name", "mlp"}, {"preprocess", "image"}, {"image_mean", "2"}}), kImages, 1, at::kFloat);
            }),
            "model.image_mean (test): mean and std of images: set both or none");
}

// A count in bfloat16 would stop at 256.
TEST(ModelsTest, ATypeIsForRealNumbersAlone) {
  const Task small{.sample_shape = {3, 16, 16}, .classes = 10};
  const auto resnet = build(section({{"name", "resnet18"}, {"width", "4"}}), small, 1, at::kBFloat16);
  for (const auto& parameter : resnet->named_parameters()) {
    EXPECT_EQ(parameter.value().scalar_type(), at::kBFloat16) << parameter.key();
    EXPECT_TRUE(parameter.value().requires_grad()) << parameter.key();
  }
  int counts = 0;
  for (const auto& buffer : resnet->named_buffers()) {
    const bool is_count = buffer.key().ends_with("num_batches_tracked");
    EXPECT_EQ(buffer.value().scalar_type(), is_count ? at::kLong : at::kBFloat16) << buffer.key();
    counts += is_count ? 1 : 0;
  }
  EXPECT_EQ(counts, 20);
}

TEST(ModelsTest, InitialValuesAreAFunctionOfTheSeed) {
  const auto first = build(section({{"name", "cnn"}}), kImages, 7, at::kFloat);
  torch::rand({100});  // whatever was drawn in between does not matter
  const auto again = build(section({{"name", "cnn"}}), kImages, 7, at::kFloat);
  const auto other = build(section({{"name", "cnn"}}), kImages, 8, at::kFloat);
  for (std::size_t i = 0; i < first->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(first->parameters()[i], again->parameters()[i]));
    EXPECT_FALSE(at::equal(first->parameters()[i], other->parameters()[i]));
  }
}

TEST(ModelsTest, GptStartsFromNanoGptsDistributions) {
  const auto gpt = build(section({{"name", "gpt"}, {"embed_dim", "128"}, {"depth", "8"}}), kText, 1, at::kDouble);
  for (const auto& parameter : gpt->named_parameters()) {
    if (parameter.value().dim() < 2) continue;
    const double expected = parameter.key().ends_with("out.weight") ? 0.02 / 4.0 : 0.02;  // sqrt(2 * 8) = 4
    const double count = static_cast<double>(parameter.value().numel());
    // Six standard errors of a standard deviation.
    EXPECT_NEAR(parameter.value().std().item<double>(), expected, 6.0 * expected / std::sqrt(2.0 * count))
        << parameter.key();
  }
}

TEST(ModelsTest, GptDoesNotLookAhead) {
  const auto gpt = build(section({{"name", "gpt"}}), kText, 1, at::kFloat);
  at::Tensor tokens = torch::arange(16, at::kLong).unsqueeze(0);
  const at::Tensor before = run(*gpt, tokens);
  tokens[0][10] = 50;
  const at::Tensor after = run(*gpt, tokens);
  EXPECT_TRUE(at::equal(before.slice(1, 0, 10), after.slice(1, 0, 10)));
  EXPECT_FALSE(at::equal(before.slice(1, 10), after.slice(1, 10)));
}

TEST(ModelsTest, DropoutDependsOnTheSeededGeneratorAlone) {
  const auto gpt = build(section({{"name", "gpt"}, {"dropout", "0.5"}}), kText, 1, at::kFloat);
  const at::Tensor tokens = torch::arange(16, at::kLong).unsqueeze(0);
  const auto forward = [&](std::uint64_t step) {
    seed_generators(3, random::Stream::forward, step);
    return run(*gpt, tokens);
  };
  const at::Tensor first = forward(5);
  EXPECT_FALSE(at::equal(first, forward(6)));
  EXPECT_TRUE(at::equal(first, forward(5)));
  gpt->eval();
  EXPECT_TRUE(at::equal(forward(5), forward(6)));
}

TEST(ModelsTest, CrossEntropyLeavesIgnoredTargetsOut) {
  const at::Tensor logits = torch::zeros({1, 3, 4}, at::kDouble);  // uniform over 4 classes
  const at::Tensor target = torch::tensor({{1L, -100L, 2L}});
  EXPECT_DOUBLE_EQ(cross_entropy(logits, target).item<double>(), std::log(4.0));
}

TEST(ModelsTest, OnlyLossesAreSummed) {
  const LossMap losses = {
      {"loss_a", torch::tensor(1.0)}, {"accuracy", torch::tensor(50.0)}, {"aux_loss", torch::tensor(2.0)}};
  EXPECT_EQ(total_loss(losses).item<double>(), 3.0);
  EXPECT_NE(error_of([] { total_loss({{"accuracy", torch::tensor(1.0)}}); }), "");
}

TEST(ModelsTest, UnknownNamesAndUnfitTasksAreRefused) {
  const std::string unknown = error_of([] { build(section({{"name", "gtp"}}), kText, 1, at::kFloat); });
  EXPECT_TRUE(unknown.starts_with("model.name (test): 'gtp' is unknown; choose one of: mlp, cnn, gpt, ")) << unknown;
  EXPECT_TRUE(unknown.ends_with("; did you mean 'gpt'?")) << unknown;
  EXPECT_EQ(error_of([] {
              build(section({{"name", "gpt"}}), kImages, 1, at::kFloat);
            }),
            "model.name: gpt needs text, but data.name provides images");
  EXPECT_EQ(error_of([] {
              build(section({{"name", "cnn"}}), kText, 1, at::kFloat);
            }),
            "model.name: cnn needs images, but data.name provides text");
  EXPECT_EQ(error_of([] {
              build(section({{"name", "gpt"}, {"embed_dim", "30"}}), kText, 1, at::kFloat);
            }),
            "model.embed_dim (test): 30 is not divisible by model.num_heads = 4");
  EXPECT_EQ(error_of([] {
              build(section({{"channels", "1,1,1,1,1"}}), kImages, 1, at::kFloat);
            }),
            "model.channels (test): too many levels for images of 28 x 28");
}

TEST(ModelsTest, AShapeMistakeNamesTheInnermostBlock) {
  const auto cnn = build(section({{"name", "cnn"}}), kImages, 1, at::kFloat);
  const std::string text = error_of([&] { run(*cnn, torch::zeros({2, 1, 20, 20})); });
  EXPECT_EQ(text.rfind("model.classifier.hidden0: ", 0), 0U) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(ModelsTest, TapsRunAroundEveryBlockAndNest) {
  const auto mlp = build(section({{"name", "mlp"}, {"hidden", "8"}}), kImages, 1, at::kFloat);
  const at::Tensor input = torch::ones({1, 1, 28, 28});
  const at::Tensor plain = run(*mlp, input);
  std::vector<std::string> seen;
  int outer_calls = 0;
  {
    const ScopedTap count([&](Block&, const Tensors& x, const auto& next) {
      ++outer_calls;
      return next(x);
    });
    const ScopedTap names([&](Block& block, const Tensors& x, const auto& next) {
      seen.push_back(block.path());
      return next(x);
    });
    EXPECT_TRUE(at::equal(run(*mlp, input), plain));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"", "hidden0", "dropout", "head"}));
  EXPECT_EQ(outer_calls, 4);
  run(*mlp, input);
  EXPECT_EQ(outer_calls, 4);  // a tap ends with its scope
}

}  // namespace models_test
}  // namespace lockstep::models
