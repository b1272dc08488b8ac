// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <set>

#include "models/losses/task_table.hpp"
#include "support/sentence.hpp"

namespace lockstep::models {
namespace loss_table_test {

using testing::sentence_of;

const Task kClasses = {.sample_shape = {3}, .classes = 4};

Section loss_section(const std::map<std::string, std::string>& values) {
  Section loss = Section::with_defaults("loss", loss_keys());
  for (const auto& [key, value] : values) loss.set(key, value, "here");
  return loss;
}

Loss loss_of(const std::map<std::string, std::string>& values, const Task& task = kClasses) {
  return make_loss(loss_section(values), task);
}

at::Tensor value_of(const Loss& loss, const at::Tensor& output, const at::Tensor& target, bool is_training) {
  return loss.value(output, batch::Batch(output.detach(), target), is_training);
}

TEST(LossTableTest, AutoIsTheLossOfTheModel) {
  EXPECT_FALSE(loss_of({}));
  EXPECT_TRUE(loss_of({{"label_smoothing", "0.1"}}));
  for (const char* name : {"cross_entropy", "bce"}) EXPECT_TRUE(loss_of({{"name", name}})) << name;
}

// A Section throws std::logic_error for other keys.
TEST(LossTableTest, ARowDeclaresTheKeysThatItReads) {
  for (const LossRow& row : builtin_losses()) {
    static const std::set<std::string> regressions = {"mse",         "l1", "huber", "smooth_l1",  "relative_l2",
                                                      "relative_l1", "h1", "l2",    "h1_absolute"};
    const bool is_regression = regressions.contains(row.name);
    const bool has_pixels = row.name.starts_with("pixels") || row.name == "dice" || row.name == "jaccard";
    const Task task{.sample_shape = {3, 8, 8},
                    .classes = 4,
                    .kind = is_regression ? TaskKind::regression
                            : has_pixels  ? TaskKind::segmentation
                                          : TaskKind::classification};
    Section loss = Section::with_defaults("loss", loss_keys({row}));
    loss.set("name", row.name, "test");
    EXPECT_NO_THROW(row.make(loss, task)) << row.name;
  }
}

TEST(LossTableTest, LossesThatDoNotFitAreRefused) {
  const auto refusal = [](const std::map<std::string, std::string>& values, TaskKind kind) {
    return sentence_of<ConfigError>([&] { loss_of(values, {.classes = 4, .kind = kind}); });
  };
  EXPECT_EQ(
      refusal({{"name", "bc"}}, TaskKind::classification),
      "loss.name (here): 'bc' is unknown; choose one of: auto, cross_entropy, bce, focal, mse, l1, huber, smooth_l1, "
      "relative_l2, relative_l1, h1, l2, h1_absolute, pixels, dice, jaccard, pixels+dice, distill; did you mean "
      "'bce'?");
  EXPECT_EQ(refusal({{"name", "cross_entropy"}}, TaskKind::regression),
            "loss.name (here): cross_entropy does not fit the task, which is regression; it is for: classification, "
            "language model, segmentation");
  EXPECT_EQ(refusal({{"name", "bce"}}, TaskKind::language),
            "loss.name (here): bce does not fit the task, which is language model; it is for: classification, "
            "multi-label");
  EXPECT_EQ(refusal({{"name", "bce"}, {"label_smoothing", "0.1"}}, TaskKind::multilabel),
            "loss.label_smoothing (here): targets of several labels cannot be smoothed; use 0");
  EXPECT_EQ(refusal({{"label_smoothing", "0.1"}}, TaskKind::custom),
            "loss.label_smoothing (here): targets of the task, which is custom, cannot be smoothed; use 0");
}

// Equal scores give every class the probability 1/4, so that the cross-entropy is ln 4 for any smoothing.
TEST(LossTableTest, EqualScoresCostTheLogarithmOfTheClasses) {
  const at::Tensor output = torch::zeros({3, 4}, torch::kDouble);
  const at::Tensor target = torch::tensor({0, 3, 1}, torch::kLong);
  for (const char* smoothing : {"0", "0.3"}) {
    const Loss loss = loss_of({{"name", "cross_entropy"}, {"label_smoothing", smoothing}});
    EXPECT_NEAR(value_of(loss, output, target, true).item<double>(), std::log(4), 1e-15);
    EXPECT_NEAR(value_of(loss, output, torch::full({3, 4}, 0.25), true).item<double>(), std::log(4), 1e-15);
  }
  EXPECT_NEAR(value_of(loss_of({{"name", "bce"}}), output, target, true).item<double>(), std::log(2), 1e-15);
}

TEST(LossTableTest, OnlyTrainingIsSmoothed) {
  const at::Tensor output = torch::tensor({{2.0, 0.0, -1.0, 0.5}});
  const at::Tensor target = torch::tensor({0}, torch::kLong);
  for (const char* name : {"cross_entropy", "bce"}) {
    const Loss loss = loss_of({{"name", name}, {"label_smoothing", "0.2"}});
    const double plain = value_of(loss_of({{"name", name}}), output, target, true).item<double>();
    EXPECT_EQ(value_of(loss, output, target, false).item<double>(), plain) << name;
    EXPECT_GT(value_of(loss, output, target, true).item<double>(), plain) << name;
  }
}

// Targets that are ignored count neither in the sum nor in its divisor, even if their outputs are not finite.
TEST(LossTableTest, IgnoredTargetsDoNotCount) {
  const at::Tensor output = torch::tensor({{2.0, 0.0, -1.0, 0.5}, {1e30, 0.0, 0.0, 0.0}}).requires_grad_();
  const at::Tensor both = torch::tensor({1, -100}, torch::kLong);
  for (const char* name : {"cross_entropy", "bce"}) {
    const Loss loss = loss_of({{"name", name}, {"label_smoothing", "0.2"}});
    const at::Tensor value = value_of(loss, output, both, true);
    EXPECT_EQ(value.item<double>(), value_of(loss, output.narrow(0, 0, 1), both.narrow(0, 0, 1), true).item<double>())
        << name;
    output.mutable_grad().reset();
    value.backward();
    EXPECT_EQ(output.grad()[1].abs().sum().item<double>(), 0) << name;
  }
}

// The task's own loss takes probabilities too, in 16 bits as well.
TEST(LossTableTest, ModelsAcceptProbabilities) {
  const at::Tensor output = torch::tensor({{2.0, 0.0}, {0.0, 1.0}});
  const at::Tensor soft = torch::tensor({{1.0, 0.0}, {0.0, 1.0}});
  const at::Tensor hard = torch::tensor({0, 1}, torch::kLong);
  Model model;
  EXPECT_NEAR(total_loss(model.losses(output, soft)).item<double>(),
              total_loss(model.losses(output, hard)).item<double>(), 1e-7);
  EXPECT_EQ(soft_cross_entropy(output.to(torch::kBFloat16), soft).scalar_type(), torch::kFloat);
}

/// A batch, its loss, and the sizes of the parts into which it is divided.
struct DividedCase {
  std::map<std::string, std::string> keys;
  Task task;
  at::Tensor output;
  at::Tensor target;
};

// Losses weighted by their counts add up to the loss of the whole batch, however it is divided: a mean of means would
// not, because the parts have different numbers of ignored targets and sums of weights.
TEST(LossTableTest, PartsAddUpToTheWhole) {
  torch::manual_seed(1);
  const at::Tensor classes = torch::tensor({0, 3, -100, 1, 2, -100, -100}, torch::kLong);
  const at::Tensor mask = torch::randint(0, 4, {7, 2, 3}, torch::kLong);
  for (const std::int64_t sample : {0, 5}) mask[sample][0][sample == 5 ? 1 : 2] = 255;
  mask[0][1][0] = 255;
  const Task labels{.classes = 4, .kind = TaskKind::multilabel};
  const Task values{.classes = 4, .kind = TaskKind::regression};
  const Task pixels{.classes = 4, .kind = TaskKind::segmentation};
  const auto normal = [](at::IntArrayRef shape) { return torch::randn(shape, torch::kDouble); };
  const std::vector<DividedCase> cases = {
      {{{"name", "cross_entropy"}}, kClasses, normal({7, 4}), classes},
      {{{"class_weights", "1,2,0.5,3"}, {"label_smoothing", "0.1"}}, kClasses, normal({7, 4}), classes},
      {{{"class_weights", "1,2,0,3"}, {"ignore_index", "1"}}, kClasses, normal({7, 4}), classes},
      {{{"name", "cross_entropy"}, {"class_weights", "1,2,0,3"}}, kClasses, normal({7, 4}), normal({7, 4}).softmax(1)},
      {{{"name", "bce"}, {"pos_weight", "1,2,0,3"}}, kClasses, normal({7, 4}), classes},
      {{{"name", "focal"}}, kClasses, normal({7, 4}), classes},
      {{{"name", "bce"}, {"pos_weight", "1,2,0,3"}}, labels, normal({7, 4}), normal({7, 4}).gt(0)},
      {{{"name", "focal"}, {"alpha", "-1"}}, labels, normal({7, 4}), normal({7, 4}).gt(0)},
      {{{"name", "mse"}, {"weights", "1,2,0,3"}}, values, normal({7, 4}), normal({7, 4})},
      {{{"name", "l1"}}, values, normal({7, 4}), normal({7, 4})},
      {{{"name", "huber"}}, values, normal({7, 4}), normal({7, 4})},
      {{{"name", "smooth_l1"}}, values, normal({7, 4}), normal({7, 4})},
      {{{"name", "pixels"}, {"class_weights", "1,2,0,3"}}, pixels, normal({7, 4, 2, 3}), mask}};
  for (const DividedCase& each : cases) {
    const Loss loss = loss_of(each.keys, each.task);
    ASSERT_TRUE(loss.count) << each.keys.begin()->second;
    const double whole = value_of(loss, each.output, each.target, true).item<double>();
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{3, 4}, {2, 3, 2}}) {
      double sum = 0;
      double total = 0;
      const auto outputs = each.output.split_with_sizes(sizes);
      const auto targets = each.target.split_with_sizes(sizes);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const double count = loss.count(batch::Batch(targets[i], targets[i]));
        total += count;
        if (count > 0) sum += count * value_of(loss, outputs[i], targets[i], true).item<double>();
      }
      EXPECT_NEAR(sum / total, whole, 1e-12) << each.keys.begin()->second;
    }
  }
}

TEST(LossTableTest, FactorsThatDoNotFitAreRefused) {
  const auto refusal = [](const std::map<std::string, std::string>& values, TaskKind kind) {
    return sentence_of<ConfigError>([&] { loss_of(values, {.classes = 4, .kind = kind}); });
  };
  EXPECT_EQ(refusal({{"class_weights", "1,2"}}, TaskKind::classification),
            "loss.class_weights (here): 2 numbers are given for 4 classes; give one for each class");
  EXPECT_EQ(refusal({{"class_weights", "1,2,-1,0"}}, TaskKind::classification),
            "loss.class_weights (here): numbers must be finite and at least 0, and one must be greater than 0");
  EXPECT_EQ(refusal({{"class_weights", "/nowhere"}}, TaskKind::classification),
            "loss.class_weights (here): '/nowhere' is neither a list of numbers nor a file that can be read");
  EXPECT_EQ(
      refusal({{"class_weights", "1,1,1,1"}}, TaskKind::regression),
      "loss.class_weights (here): the task, which is regression, has no cross-entropy of classes; choose its loss "
      "with loss.name");
}

TEST(LossTableTest, ARowOfAProgramIsUsed) {
  std::vector<LossRow> rows = builtin_losses();
  rows.push_back({.name = "twice",
                  .help = "Twice the sum of the outputs",
                  .keys = {keys::real("loss.factor", "2", "Factor")},
                  .make = [](const Section& loss, const Task&) -> Loss {
                    return loss_of_target([factor = loss.real("factor")](const at::Tensor& output, const at::Tensor&,
                                                                         bool) { return factor * output.sum(); });
                  }});
  rows.push_back({.name = "none", .help = "", .keys = {}, .make = [](const Section&, const Task&) { return Loss(); }});
  Section loss = Section::with_defaults("loss", loss_keys(rows));
  loss.set("name", "none", "here");
  EXPECT_EQ(sentence_of<ConfigError>([&] { make_loss(loss, kClasses, rows); }),
            "loss.name (here): the function `make` of the loss returned nothing");
  loss.set("name", "twice", "here");
  Model model;
  model.set_loss(make_loss(loss, kClasses, rows));
  const batch::Batch batch(torch::ones({2, 4}), torch::zeros({2}, torch::kLong));
  const LossMap losses = losses_of(model, batch::Outputs(torch::ones({2, 4})), batch);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses.front().first, "loss");
  EXPECT_EQ(total_loss(losses).item<double>(), 16);
}

// The values 1, 2 and 4 of two outputs, the batch and its target enter with factors that tell them apart.
TEST(LossTableTest, ARowReadsEveryOutputAndTheBatch) {
  std::vector<LossRow> rows = builtin_losses();
  rows.push_back({.name = "all", .help = "", .keys = {}, .make = [](const Section&, const Task&) {
                    return Loss{
                        .value =
                            [](const batch::Outputs& outputs, const batch::Batch& batch, bool is_training) {
                              return 1000 * outputs.main().sum() + 100 * outputs.tensor("second").sum() +
                                     10 * batch.tensor("weight").sum() + batch.target().sum() + (is_training ? 0.5 : 0);
                            },
                        .count = [](const batch::Batch& batch) { return batch.tensor("weight").sum().item<double>(); }};
                  }});
  Section loss = Section::with_defaults("loss", loss_keys(rows));
  loss.set("name", "all", "here");
  Model model;
  model.set_loss(make_loss(loss, kClasses, rows));
  batch::Batch batch(torch::zeros({1}), torch::full({1}, 4, torch::kDouble));
  batch.set("weight", torch::full({1}, 3, torch::kDouble));
  const batch::Outputs outputs = {{"first", torch::full({1}, 1, torch::kDouble)},
                                  {"second", torch::full({1}, 2, torch::kDouble)}};
  EXPECT_EQ(total_loss(losses_of(model, outputs, batch)).item<double>(), 1234.5);
  model.eval();
  EXPECT_EQ(total_loss(losses_of(model, outputs, batch)).item<double>(), 1234);
  EXPECT_EQ(counts_of(model, batch), (std::vector<std::pair<std::string, double>>{{"loss", 3}}));
}

// Works as in `trainer eval`, where all values come from a checkpoint.
TEST(LossTableTest, DefaultsThatAreStatedStayDefaults) {
  Section loss = Section::with_defaults("loss", loss_keys());
  loss.set("class_weights", "", "state.h5");
  loss.set("ignore_index", "-100", "state.h5");
  loss.set("label_smoothing", "0", "state.h5");
  EXPECT_FALSE(make_loss(loss, {.kind = TaskKind::custom}));
  loss.set("name", "pixels", "state.h5");
  const at::Tensor scores = torch::randn({1, 2, 1, 2}, at::kDouble);
  const at::Tensor target = torch::tensor({1, 255}).view({1, 1, 2});
  const at::Tensor expected = scores.slice(3, 0, 1).logsumexp(1).sum() - scores[0][1][0][0];
  const Loss pixels = make_loss(loss, {.classes = 2, .kind = TaskKind::segmentation});
  EXPECT_NEAR(value_of(pixels, scores, target, true).item<double>(), expected.item<double>(), 1e-12);
}

}  // namespace loss_table_test
}  // namespace lockstep::models
