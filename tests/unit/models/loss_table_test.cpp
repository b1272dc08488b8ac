// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

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

// Smoothed samples of a class of weight 0 have a loss, but the divisor of a batch of them is 0.
TEST(LossTableTest, ABatchWithoutWeightHasAFiniteGradient) {
  const Loss loss = loss_of({{"name", "cross_entropy"}, {"class_weights", "1,2,0,3"}, {"label_smoothing", "0.2"}});
  const at::Tensor output = torch::tensor({{2.0, 0.0, -1.0, 0.5}, {1.0, 0.0, 3.0, 0.0}}).requires_grad_();
  const at::Tensor value = value_of(loss, output, torch::tensor({2, 2}, torch::kLong), true);
  value.backward();
  EXPECT_TRUE(std::isfinite(value.item<double>()));
  EXPECT_TRUE(at::isfinite(output.grad()).all().item<bool>());
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

/// Scores of four samples, their targets, and the keys of a loss.
struct WeighedCase {
  std::map<std::string, std::string> keys;
  Task task;
  std::vector<std::int64_t> shape;
  at::Tensor target;
};

std::vector<WeighedCase> weighed_cases() {
  torch::manual_seed(3);
  const at::Tensor classes = torch::tensor({2, 1, -100, 3});
  const at::Tensor sets = torch::randn({4, 4}).gt(0);
  const at::Tensor pixels = torch::tensor({0, 1, 2, 255, 3, 1, 255, 255, 2, 0, 0, 1}).view({4, 1, 3});
  const at::Tensor numbers = torch::randn({4, 3}, at::kDouble);
  const auto task = [](TaskKind kind, std::int64_t count) {
    return Task{.sample_shape = {3}, .classes = count, .kind = kind};
  };
  const Task classified = task(TaskKind::classification, 4), labeled = task(TaskKind::multilabel, 4),
             segmented = task(TaskKind::segmentation, 4), measured = task(TaskKind::regression, 3);
  std::vector<WeighedCase> cases = {
      {{}, classified, {4, 4}, classes},
      {{}, labeled, {4, 4}, sets},
      {{}, segmented, {4, 4, 1, 3}, pixels},
      {{}, measured, {4, 3}, numbers},
      {{{"label_smoothing", "0.1"}}, classified, {4, 4}, classes},
      {{{"name", "cross_entropy"}, {"class_weights", "1,0,0.3,3"}}, classified, {4, 4}, classes},
      {{{"name", "bce"}, {"pos_weight", "1,2,0,3"}}, labeled, {4, 4}, sets},
      {{{"name", "bce"}}, classified, {4, 4}, classes},
      {{{"name", "focal"}}, classified, {4, 4}, classes},
      {{{"name", "pixels"}, {"class_weights", "1,2,0.3,3"}}, segmented, {4, 4, 1, 3}, pixels},
      {{{"name", "mse"}, {"weights", "1,0,3"}}, measured, {4, 3}, numbers},
  };
  for (const char* name : {"l1", "huber", "smooth_l1"}) cases.push_back({{{"name", name}}, measured, {4, 3}, numbers});
  return cases;
}

const char* usual_loss(TaskKind kind) {
  if (kind == TaskKind::regression) return "mse";
  if (kind == TaskKind::segmentation) return "pixels";
  return kind == TaskKind::multilabel ? "bce" : "cross_entropy";
}

// A sample of weight 3 counts as three samples, and one of weight 0 as none: in the value, the gradient and the count.
TEST(LossTableTest, AWeightRepeatsItsSample) {
  std::set<std::string> covered = {"auto"};
  for (WeighedCase each : weighed_cases()) {
    const std::string name = each.keys.contains("name") ? each.keys.at("name") : "auto";
    covered.insert(name);
    for (const bool has_mask : {false, true}) {
      if (has_mask && (each.task.kind != TaskKind::regression || each.keys.contains("weights"))) continue;
      SCOPED_TRACE(name + (has_mask ? " with gaps" : ""));
      const at::Tensor copies = torch::tensor({0, 0, 2, 3, 3, 3});
      const at::Tensor mask = torch::arange(12).view({4, 3}).remainder(5).ne(0);
      const auto result = [&](bool is_weighted) {
        each.task.has_weights = is_weighted;
        std::map<std::string, std::string> keys = each.keys;
        if (!is_weighted) keys.try_emplace("name", usual_loss(each.task.kind));  // auto is the loss of a model
        const Loss loss = loss_of(keys, each.task);
        const at::Tensor scores = torch::linspace(-2, 3, c10::multiply_integers(each.shape), at::kDouble)
                                      .sin()
                                      .view(each.shape)
                                      .requires_grad_();
        const at::Tensor output = is_weighted ? scores : scores.index_select(0, copies);
        batch::Batch batch(scores.detach(), is_weighted ? each.target : each.target.index_select(0, copies));
        if (is_weighted) batch.set("weight", torch::tensor({2.0F, 0.0F, 1.0F, 3.0F}));
        if (has_mask) batch.set("mask", is_weighted ? mask : mask.index_select(0, copies));
        const at::Tensor value = loss.value(output, batch, true);
        value.backward();
        const auto count = loss.count ? loss.count(batch) : static_cast<double>(batch.target().size(0));
        return std::tuple(value.item<double>(), count, scores.grad().clone());
      };
      const auto [weighted, weighted_count, weighted_gradient] = result(true);
      const auto [repeated, repeated_count, repeated_gradient] = result(false);
      EXPECT_NEAR(weighted, repeated, 1e-12 * std::abs(repeated));
      EXPECT_NEAR(weighted_count, repeated_count, 1e-12 * repeated_count);
      EXPECT_TRUE(at::allclose(weighted_gradient, repeated_gradient, 1e-12, 1e-14));
      EXPECT_GT(repeated_gradient.abs().max().item<double>(), 1e-3);
    }
  }
  for (const LossRow& row : builtin_losses()) EXPECT_EQ(covered.contains(row.name), row.weighs_samples) << row.name;
}

// The weights of samples multiply those of latitudes: (1 * 3 * 2^2 + 0.5 * 1 * 4^2) / (3 * 1.5 + 1 * 1.5) of the rows
// of 0 and 60 degrees.
TEST(LossTableTest, WeightsOfSamplesMultiplyThoseOfLatitudes) {
  const Task task = {.sample_shape = {1, 2, 1},
                     .classes = 1,
                     .kind = TaskKind::regression,
                     .has_weights = true,
                     .fields = {.channels = {"u"}, .axes = {"lat", "lon"}, .coordinates = {{0, 60}, {0}}}};
  const Loss loss = loss_of({{"name", "mse"}, {"area", "cosine"}}, task);
  const at::Tensor errors = torch::tensor({2.0, 0.0, 0.0, 4.0}, at::kDouble).view({2, 1, 2, 1});
  batch::Batch batch(errors, at::zeros_like(errors));
  batch.set("weight", torch::tensor({3.0, 1.0}));
  EXPECT_NEAR(loss.value(errors, batch, true).item<double>(), (3 * 4.0 + 0.5 * 16) / (4 * 1.5), 1e-12);
  EXPECT_NEAR(loss.count(batch), 4 * 2, 1e-12) << "weights of latitudes have the mean 1";
}

TEST(LossTableTest, LossesThatDoNotWeighSamplesAreRefused) {
  const auto refusal = [](const std::string& name, TaskKind kind) {
    return sentence_of<ConfigError>([&] {
      loss_of({{"name", name}}, {.sample_shape = {3}, .classes = 4, .kind = kind, .has_weights = true});
    });
  };
  EXPECT_EQ(refusal("dice", TaskKind::segmentation),
            "loss.name (here): dice does not weigh samples, but the samples have weights (data.weight_array); remove "
            "them, or choose one of: auto, cross_entropy, bce, focal, mse, l1, huber, smooth_l1, pixels");
  for (const char* name : {"relative_l2", "h1"}) {
    EXPECT_NE(refusal(name, TaskKind::regression).find("does not weigh samples"), std::string::npos) << name;
  }
  EXPECT_NE(refusal("distill", TaskKind::classification).find("does not weigh samples"), std::string::npos);
  EXPECT_EQ(refusal("auto", TaskKind::custom),
            "loss.name (here): the samples have weights, but the losses of a task that is custom do not weigh samples; "
            "remove the weights");
  const Loss loss = loss_of({{"name", "mse"}}, {.classes = 1, .kind = TaskKind::regression, .has_weights = true});
  batch::Batch batch(torch::zeros({2, 1}), torch::zeros({2, 1}));
  batch.set("weight", torch::ones({2, 1}));
  EXPECT_EQ(sentence_of<DataError>([&] {
              loss.value(torch::zeros({2, 1}), batch, true);
            }),
            "the value weight of the batch has the shape [2, 1], but one number is needed for each of the samples of "
            "the shape [2, 1]");
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
