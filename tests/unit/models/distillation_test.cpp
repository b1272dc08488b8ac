// SPDX-License-Identifier: BSD-3-Clause
#include "models/losses/distillation.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "support/sentence.hpp"

namespace lockstep::models {
namespace distillation_test {

using testing::sentence_of;

const Task kClasses = {.sample_shape = {3}, .classes = 4};
const Task kPixels = {.sample_shape = {3, 2, 3}, .classes = 4, .kind = TaskKind::segmentation};

Section loss_section(const std::map<std::string, std::string>& values = {}) {
  Section loss = Section::with_defaults("loss", loss_keys());
  loss.set("name", "distill", "here");
  for (const auto& [key, value] : values) loss.set(key, value, "here");
  return loss;
}

/// A teacher with these scores, and how often it was asked.
struct Asked {
  at::Tensor scores;
  int times = 0;
  Teacher teacher() {
    return [this](const batch::Batch&) {
      ++times;
      return scores;
    };
  }
};

Loss distilled(Asked& asked, const Distillation& settings, const Task& task = kClasses) {
  return with_teacher(loss_section(), task, settings, asked.teacher());
}

at::Tensor normal(at::IntArrayRef shape) { return torch::randn(shape, torch::kDouble); }

at::Tensor trained_value(const Loss& loss, const at::Tensor& output, const batch::Batch& batch) {
  return loss.value(output, batch, /*is_training=*/true);
}

// The divergence of equal scores is 0, and so is its gradient, whatever the temperature and a constant in the scores.
TEST(DistillationTest, NothingIsLearnedFromAnEqualTeacher) {
  torch::manual_seed(1);
  const at::Tensor output = normal({3, 4}).requires_grad_();
  const batch::Batch batch(output.detach(), torch::tensor({0, 3, 1}, torch::kLong));
  for (const double temperature : {0.5, 1.0, 7.0}) {
    Asked asked{.scores = output.detach() + 5};
    const at::Tensor value = trained_value(distilled(asked, {.alpha = 1, .temperature = temperature}), output, batch);
    EXPECT_NEAR(value.item<double>(), 0, 1e-14);
    output.mutable_grad().reset();
    value.backward();
    EXPECT_LT(output.grad().abs().max().item<double>(), 1e-14);
    EXPECT_EQ(asked.times, 1);
  }
}

// Equal scores of the model against a certain teacher: t^2 times the divergence of (1, 0) from (1/2, 1/2), which is
// ln 2.
TEST(DistillationTest, ACertainTeacherCostsTheLogarithm) {
  Asked asked{.scores = torch::tensor({{1e4, 0.0}}, torch::kDouble)};
  const batch::Batch batch(torch::zeros({1, 2}), torch::tensor({1}, torch::kLong));
  const Task task{.classes = 2};
  const at::Tensor output = torch::zeros({1, 2}, torch::kDouble);
  EXPECT_NEAR(trained_value(distilled(asked, {.alpha = 1, .temperature = 3}, task), output, batch).item<double>(),
              9 * std::log(2), 1e-12);
  EXPECT_NEAR(trained_value(distilled(asked, {.alpha = 0.25, .temperature = 3}, task), output, batch).item<double>(),
              (0.75 + 0.25 * 9) * std::log(2), 1e-12);
}

// The loss of evaluations is the cross-entropy, and the teacher is not asked.
TEST(DistillationTest, OnlyTrainingAsksTheTeacher) {
  Asked asked{.scores = normal({3, 4})};
  Model model;
  model.set_loss(distilled(asked, {}));
  const at::Tensor output = normal({3, 4});
  const batch::Batch batch(torch::zeros({3, 1}), torch::tensor({0, 3, 1}, torch::kLong));
  const double plain = cross_entropy(output, batch.target()).item<double>();
  const double trained = total_loss(losses_of(model, batch::Outputs(output), batch)).item<double>();
  EXPECT_EQ(asked.times, 1);
  EXPECT_GT(std::abs(trained - plain), 1e-3);
  model.eval();
  EXPECT_EQ(total_loss(losses_of(model, batch::Outputs(output), batch)).item<double>(), plain);
  EXPECT_EQ(asked.times, 1);
}

// Parts weighted by their counts add up to the whole, for every kind of target; what is ignored counts in no term.
TEST(DistillationTest, PartsAddUpToTheWhole) {
  torch::manual_seed(2);
  const at::Tensor mask = torch::randint(0, 4, {7, 2, 3}, torch::kLong);
  mask[0][1][0] = 255;
  mask[5][0][1] = 255;
  struct Case {
    Task task;
    at::Tensor output;
    at::Tensor target;
  };
  const Task text{.sample_shape = {5}, .classes = 4, .is_text = true, .kind = TaskKind::language};
  const at::Tensor tokens = torch::randint(0, 4, {7, 5}, torch::kLong);
  tokens.narrow(0, 0, 2).fill_(-100);
  const std::vector<Case> cases = {
      {kClasses, normal({7, 4}), torch::tensor({0, 3, -100, 1, 2, -100, -100}, torch::kLong)},
      {kClasses, normal({7, 4}), normal({7, 4}).softmax(1)},
      {text, normal({7, 5, 4}), tokens},
      {kPixels, normal({7, 4, 2, 3}), mask}};
  for (const Case& each : cases) {
    const at::Tensor scores = normal(each.output.sizes());
    Asked asked{.scores = scores};
    const Loss loss = distilled(asked, {.alpha = 0.7, .temperature = 2}, each.task);
    const double whole = trained_value(loss, each.output, batch::Batch(each.output, each.target)).item<double>();
    double sum = 0;
    double total = 0;
    std::int64_t begin = 0;
    for (const std::int64_t size : {2, 4, 1}) {
      const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, size); };
      asked.scores = part(scores);
      const batch::Batch batch(part(each.output), part(each.target));
      const double count = loss.count(batch);
      total += count;
      if (count > 0) sum += count * trained_value(loss, part(each.output), batch).item<double>();
      begin += size;
    }
    EXPECT_NEAR(sum / total, whole, 1e-12) << each.output.sizes();
  }
}

TEST(DistillationTest, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const Section& loss, const Task& task) {
    return sentence_of<ConfigError>([&] { make_loss(loss, task); });
  };
  EXPECT_EQ(refusal(loss_section(), {.classes = 4, .kind = TaskKind::regression}),
            "loss.name (here): distill does not fit the task, which is regression; it is for: classification, language "
            "model, segmentation");
  EXPECT_EQ(refusal(loss_section({{"class_weights", "1,2,3,4"}}), kClasses),
            "loss.class_weights (here) cannot be combined with loss.name=distill: the scores of the teacher have no "
            "such weights; leave it empty");
  Asked asked{.scores = normal({3, 5})};
  const batch::Batch batch(torch::zeros({3, 1}), torch::tensor({0, 3, 1}, torch::kLong));
  EXPECT_EQ(sentence_of<ConfigError>([&] {
              trained_value(distilled(asked, {}), normal({3, 4}), batch);
            }),
            "distill.from: the outputs of the teacher have another shape than those of the model; use a teacher that "
            "was trained for the same task");
}

}  // namespace distillation_test
}  // namespace lockstep::models
