// SPDX-License-Identifier: BSD-3-Clause
// Every row of the table of losses, in float64: training and evaluation on all ranks agree with those of one rank,
// although batches, ignored targets and weights are divided unevenly.
#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "engine/evaluation/evaluation_counts.hpp"
#include "models/losses/distillation.hpp"
#include "small_run.hpp"

namespace lockstep::engine {
namespace loss_agreement_test {

constexpr std::int64_t kFeatures = 5;
constexpr std::int64_t kClasses = 4;

/// A pure function of sample and place, in (-1, 1).
at::Tensor numbers(std::int64_t sample, at::IntArrayRef shape) {
  const std::int64_t count = c10::multiply_integers(shape);
  return at::sin(torch::arange(count, at::kDouble) * 0.7 + static_cast<double>(sample) * 1.3).view(shape);
}

/// Classes of several places, of which some samples ignore most, and some all.
at::Tensor classes_of(std::int64_t sample, at::IntArrayRef shape, std::int64_t ignored) {
  const at::Tensor classes = (numbers(sample + 3, shape) * 1000).to(at::kLong).remainder(kClasses);
  const double limit = sample % 5 == 2 ? -2 : sample % 3 == 0 ? -0.8 : 0.9;
  const at::Tensor is_ignored = numbers(sample, shape).gt(limit);
  return classes.masked_fill(is_ignored, ignored);
}

class Rows : public data::SampleDataset {
 public:
  /// @param ignored  in masks
  Rows(TaskKind kind, std::int64_t size, std::int64_t ignored = 255) : kind_(kind), size_(size), ignored_(ignored) {}
  std::int64_t size() const override { return size_; }
  Task task() const override { return {.sample_shape = {kFeatures}, .classes = kClasses, .kind = kind_}; }
  std::uint64_t digest() const override { return static_cast<std::uint64_t>(kind_); }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const std::int64_t i = draw.index;
    switch (kind_) {
      case TaskKind::classification:
        return {{"data", numbers(i, {kFeatures})}, {"label", i % 3 == 1 ? -100 : i % kClasses}};
      case TaskKind::multilabel:
        return {{"data", numbers(i, {kFeatures})}, {"label", numbers(i + 7, {kClasses}).gt(0).to(at::kDouble)}};
      case TaskKind::segmentation:
        return {{"data", numbers(i, {kFeatures, 2, 3})}, {"label", classes_of(i, {2, 3}, ignored_)}};
      case TaskKind::language:
        return {{"data", numbers(i, {6, kFeatures})}, {"label", classes_of(i, {6}, -100)}};
      default:
        return {{"data", numbers(i, {kFeatures})}, {"label", numbers(i + 9, {kClasses})}};
    }
  }

 private:
  TaskKind kind_;
  std::int64_t size_;
  std::int64_t ignored_;
};

/// Rows with the weights 0, 1, 2, 3, 0, ...
class WeightedRows : public Rows {
 public:
  using Rows::Rows;
  Task task() const override {
    Task task = Rows::task();
    task.has_weights = true;
    return task;
  }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    batch::ValueMap values = Rows::sample(draw);
    values["weight"] = static_cast<double>(draw.index % 4);
    return values;
  }
};

/// Fields of two latitudes and three longitudes.
class FieldRows : public Rows {
 public:
  /// @param has_mask  most points of some samples, and all of others, are gaps
  FieldRows(std::int64_t size, bool has_mask) : Rows(TaskKind::regression, size), has_mask_(has_mask) {}
  Task task() const override {
    return {.sample_shape = {kFeatures, 2, 3},
            .classes = kClasses,
            .kind = TaskKind::regression,
            .fields = {.channels = {"a", "b", "c", "d"}, .axes = {"lat", "lon"}, .coordinates = {{10, 20}, {0, 1, 2}}}};
  }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const std::int64_t i = draw.index;
    batch::ValueMap values = {{"data", numbers(i, {kFeatures, 2, 3})}, {"label", numbers(i + 9, {kClasses, 2, 3})}};
    if (has_mask_) values["mask"] = classes_of(i, {kClasses, 2, 3}, -1).ge(0);
    return values;
  }

 private:
  bool has_mask_;
};

/// 16 labeled samples, with four after each of the first three groups of four that have no label, or without those.
class Gaps : public Rows {
 public:
  explicit Gaps(bool has_gaps) : Rows(TaskKind::classification, has_gaps ? 28 : 16), has_gaps_(has_gaps) {}
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const std::int64_t group = draw.index / 4;
    const bool is_gap = has_gaps_ && group % 2 == 1;
    const std::int64_t labeled = (has_gaps_ ? group / 2 : group) * 4 + draw.index % 4;
    return {{"data", numbers(labeled, {kFeatures})}, {"label", is_gap ? -100 : labeled % kClasses}};
  }

 private:
  bool has_gaps_;
};

/// One linear map of the features of each sample, token or pixel.
class Pointwise : public models::Model {
 public:
  Pointwise(const Section&, const Task& task) {
    head = register_module("head", std::make_shared<models::Linear>(kFeatures, task.classes));
  }
  at::Tensor forward(const at::Tensor& input) override {
    if (input.dim() < 4) return models::run(*head, input);
    return models::run(*head, input.movedim(1, -1)).movedim(-1, 1);
  }
  std::shared_ptr<models::Linear> head;
};

template <TaskKind kKind>
data::Splits open_rows(const Section&) {
  return {.train = std::make_shared<Rows>(kKind, 50), .val = std::make_shared<Rows>(kKind, 13)};
}

template <TaskKind kKind>
data::Splits open_weighted(const Section&) {
  return {.train = std::make_shared<WeightedRows>(kKind, 50), .val = std::make_shared<WeightedRows>(kKind, 13)};
}

data::Splits open_masks(const Section&) {
  return {.train = std::make_shared<Rows>(TaskKind::segmentation, 50, -100),
          .val = std::make_shared<Rows>(TaskKind::segmentation, 13, -100)};
}

template <bool kHasMask>
data::Splits open_fields(const Section&) {
  return {.train = std::make_shared<FieldRows>(50, kHasMask), .val = std::make_shared<FieldRows>(13, kHasMask)};
}

template <bool kHasGaps>
data::Splits open_gaps(const Section&) {
  return {.train = std::make_shared<Gaps>(kHasGaps), .val = std::make_shared<Gaps>(kHasGaps)};
}

Registry registry_with_rows() {
  Registry registry;
  registry.sources.push_back({"classification", "", {}, open_rows<TaskKind::classification>});
  registry.sources.push_back({"multilabel", "", {}, open_rows<TaskKind::multilabel>});
  registry.sources.push_back({"segmentation", "", {}, open_rows<TaskKind::segmentation>});
  registry.sources.push_back({"segmentation of masks", "", {}, open_masks});
  registry.sources.push_back({"with gaps", "", {}, open_gaps<true>});
  registry.sources.push_back({"without gaps", "", {}, open_gaps<false>});
  registry.sources.push_back({"fields of a grid", "", {}, open_fields<false>});
  registry.sources.push_back({"fields of a mask", "", {}, open_fields<true>});
  registry.sources.push_back({"language", "", {}, open_rows<TaskKind::language>});
  registry.sources.push_back({"regression", "", {}, open_rows<TaskKind::regression>});
  registry.sources.push_back({"weighted classes", "", {}, open_weighted<TaskKind::classification>});
  registry.sources.push_back({"weighted multilabel", "", {}, open_weighted<TaskKind::multilabel>});
  registry.sources.push_back({"weighted regression", "", {}, open_weighted<TaskKind::regression>});
  registry.models.push_back({.name = "pointwise",
                             .help = "",
                             .keys = {},
                             .make = [](const Section& model, const Task& task) -> std::shared_ptr<models::Model> {
                               return std::make_shared<Pointwise>(model, task);
                             }});
  return registry;
}

struct LossCase {
  std::string source;
  Settings loss;
  bool is_of_regions = false;  ///< the loss is of a micro-batch as a whole, not a sum over its pixels
};

const std::vector<LossCase>& cases() {
  static const std::vector<LossCase> all = {
      {"classification", {{"loss.name", "auto"}, {"loss.label_smoothing", "0.1"}}},
      {"classification", {{"loss.name", "auto"}}},
      {"multilabel", {{"loss.name", "auto"}}},
      {"regression", {{"loss.name", "auto"}}},
      {"segmentation of masks", {{"loss.name", "auto"}}},
      {"language", {{"loss.name", "auto"}}},
      {"classification", {{"loss.name", "cross_entropy"}}},
      {"classification", {{"loss.name", "cross_entropy"}, {"loss.class_weights", "1,0,0.3,3"}}},
      {"classification", {{"loss.name", "bce"}, {"loss.pos_weight", "1,2,0,3"}}},
      {"classification", {{"loss.name", "focal"}}},
      {"classification", {{"loss.name", "distill"}}},
      {"multilabel", {{"loss.name", "bce"}}},
      {"multilabel", {{"loss.name", "focal"}, {"loss.gamma", "1.5"}}},
      {"regression", {{"loss.name", "mse"}, {"loss.weights", "1,2,0,3"}}},
      {"regression", {{"loss.name", "l1"}}},
      {"regression", {{"loss.name", "huber"}, {"loss.delta", "0.5"}}},
      {"regression", {{"loss.name", "smooth_l1"}, {"loss.beta", "0.5"}}},
      {"fields of a grid", {{"loss.name", "mse"}, {"loss.area", "true"}}},
      {"fields of a grid", {{"loss.name", "h1"}, {"loss.periodic", "true"}}},
      {"fields of a grid", {{"loss.name", "h1_absolute"}, {"loss.periodic", "true"}, {"loss.measure", "2,3"}}},
      {"fields of a mask", {{"loss.name", "auto"}}},
      {"fields of a mask", {{"loss.name", "mse"}, {"loss.area", "cosine"}, {"loss.channel_weights", "1,2,0,3"}}},
      {"fields of a mask", {{"loss.name", "l1"}, {"loss.channel_weights", "1,2"}}},
      {"fields of a mask", {{"loss.name", "huber"}}},
      {"fields of a mask", {{"loss.name", "relative_l2"}, {"loss.area", "true"}}},
      {"fields of a mask", {{"loss.name", "relative_l1"}}},
      {"fields of a mask", {{"loss.name", "l2"}, {"loss.measure", "2"}}},
      {"weighted classes", {{"loss.name", "auto"}}},
      {"weighted classes", {{"loss.name", "focal"}}},
      {"weighted multilabel", {{"loss.name", "auto"}}},
      {"weighted regression", {{"loss.name", "auto"}}},
      {"segmentation", {{"loss.name", "pixels"}, {"loss.class_weights", "1,2,0.3,3"}}},
      {"segmentation", {{"loss.name", "distill"}}},
      {"segmentation", {{"loss.name", "dice"}}, true},
      {"segmentation", {{"loss.name", "jaccard"}, {"loss.smooth", "1"}}, true},
      {"segmentation", {{"loss.name", "pixels+dice"}, {"loss.dice_weight", "0.5"}}, true},
      {"language", {{"loss.name", "cross_entropy"}}},
      {"language", {{"loss.name", "distill"}}},
  };
  return all;
}

std::string title_of(const LossCase& each) {
  return each.source + " " + each.loss.front().second + (each.loss.size() > 1 ? " " + each.loss.back().first : "");
}

/// Another linear map, the same on every rank.
at::Tensor scores_of_teacher(const batch::Batch& batch) {
  const at::Tensor weight = numbers(77, {kFeatures, kClasses}) * 2;
  const at::Tensor& input = batch.input();
  return input.dim() < 4 ? input.matmul(weight) : input.movedim(1, -1).matmul(weight).movedim(-1, 1);
}

struct LossRun : SmallRun {
  LossRun(const mpi::Communicator& world, const LossCase& each, const Settings& more, const Registry& registry)
      : SmallRun(world,
                 with(with({{"model.name", "pointwise"},
                            {"data.name", each.source},
                            {"train.precision", "fp64"},
                            {"train.max_steps", "6"},
                            {"optim.name", "sgd"},
                            {"optim.lr", "0.2"}},
                           each.loss),
                      more),
                 registry) {
    if (each.loss.front().second != "distill") return;
    model.wrapper->model().set_loss(models::with_teacher(sections.at("loss"), splits.train->task(),
                                                         {.alpha = 0.7, .temperature = 2}, scores_of_teacher));
  }

  at::Tensor weight() { return model.wrapper->model().parameters().front().detach().clone(); }
};

class LossAgreementTest : public ::testing::Test {
 protected:
  mpi::Communicator world_ = mpi::Communicator::world();
  mpi::Communicator self_ = world_.split(world_.rank());
  Registry registry_ = registry_with_rows();
};

TEST_F(LossAgreementTest, TheTableHasNoOtherRows) {
  std::vector<std::string> missing;
  for (const models::LossRow& row : models::builtin_losses()) {
    const auto is_this = [&row](const LossCase& each) { return each.loss.front().second == row.name; };
    if (std::none_of(cases().begin(), cases().end(), is_this)) missing.push_back(row.name);
  }
  EXPECT_EQ(missing, std::vector<std::string>());
}

// 11 samples of 2 to a forward pass: ranks have different numbers of passes, and the last of each is shorter.
TEST_F(LossAgreementTest, StepsTrainTheMeanOverAllThatCounts) {
  for (const LossCase& each : cases()) {
    if (each.is_of_regions) continue;
    LossRun alone(self_, each, {{"train.global_batch_size", "11"}}, registry_);
    LossRun divided(world_, each, {{"train.global_batch_size", "11"}, {"train.micro_batch", "2"}}, registry_);
    const at::Tensor before = alone.weight();
    alone.trainer.train();
    divided.trainer.train();
    ASSERT_EQ(divided.losses.size(), 6U);
    EXPECT_GT((alone.weight() - before).abs().max().item<double>(), 1e-3) << title_of(each);
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(divided.losses[i], alone.losses[i], 1e-12 * std::abs(alone.losses[i])) << title_of(each) << " " << i;
    }
    EXPECT_LT((alone.weight() - divided.weight()).abs().max().item<double>(), 1e-12) << title_of(each);
  }
}

// Every third sample has no label, and every fifth no pixel or token that counts: with one sample in each forward pass,
// some passes have nothing that counts.
TEST_F(LossAgreementTest, PartsWithoutCountedTargetsAddNothing) {
  for (const LossCase& each : cases()) {
    if (each.is_of_regions || each.source == "multilabel" || each.source == "regression") continue;
    LossRun alone(self_, each, {{"train.global_batch_size", "6"}}, registry_);
    LossRun divided(world_, each, {{"train.global_batch_size", "6"}, {"train.micro_batch", "1"}}, registry_);
    alone.trainer.train();
    divided.trainer.train();
    ASSERT_EQ(divided.losses.size(), 6U);
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(divided.losses[i], alone.losses[i], 1e-12 * std::abs(alone.losses[i])) << title_of(each) << " " << i;
    }
    EXPECT_LT((alone.weight() - divided.weight()).abs().max().item<double>(), 1e-12) << title_of(each);
  }
}

// Adam counts its updates and decays the weights in each: one more update would change the bits.
TEST_F(LossAgreementTest, StepsWithoutCountedTargetsAreSkipped) {
  for (const std::string name : {"auto", "cross_entropy", "bce", "focal"}) {
    const auto trained = [&](const std::string& source, const std::string& steps) {
      LossRun run(world_, {source, {{"loss.name", name}}},
                  {{"train.global_batch_size", "4"},
                   {"train.max_steps", steps},
                   {"data.shuffle", "false"},
                   {"optim.name", "adamw"},
                   {"optim.weight_decay", "0.1"}},
                  registry_);
      run.trainer.train();
      return std::pair(run.weight(), run.losses);
    };
    const auto [expected, losses] = trained("without gaps", "4");
    const auto [found, found_losses] = trained("with gaps", "7");
    EXPECT_TRUE(at::allclose(found, expected, 1e-12, 1e-14)) << name;
    ASSERT_EQ(found_losses.size(), 7U);
    for (std::size_t i = 0; i < found_losses.size(); ++i) {
      if (i % 2 == 1) {
        EXPECT_TRUE(std::isnan(found_losses[i])) << name << " " << i;
      } else {
        EXPECT_NEAR(found_losses[i], losses[i / 2], 1e-12) << name << " " << i;
      }
    }
  }
}

// Every bit is the same, also of losses that look at a micro-batch as a whole, with lanes.
TEST_F(LossAgreementTest, LanesGiveTheSameBits) {
  for (const LossCase& each : cases()) {
    const Settings lanes = {{"train.global_batch_size", "12"}, {"train.lanes", "4"}};
    LossRun alone(self_, each, lanes, registry_);
    LossRun divided(world_, each, lanes, registry_);
    alone.trainer.train();
    divided.trainer.train();
    EXPECT_EQ(divided.losses, alone.losses) << title_of(each);
    EXPECT_TRUE(at::equal(alone.weight(), divided.weight())) << title_of(each);
  }
}

// 13 samples in batches of 3: the last batch has one, and some ranks have more batches than others. The loss of batches
// of one, of which some have nothing that counts, and of all samples is the same, unless it compares regions.
TEST_F(LossAgreementTest, EvaluationsAgreeToo) {
  for (const LossCase& each : cases()) {
    const auto evaluated = [&](const mpi::Communicator& world, metrics::Meters& meters, std::int64_t batch_size = 3) {
      LossRun run(world, each, {}, registry_);
      return evaluate(run, *run.splits.val, batch_size, meters);
    };
    const Task task = Rows(TaskKind::custom, 1).task();  // any meter fits it
    const std::string meter = each.source.ends_with("multilabel")       ? "multilabel,threshold=0"
                              : each.source.ends_with("regression")     ? "regression"
                              : each.source.starts_with("fields")       ? "field"
                              : each.source.starts_with("segmentation") ? "overlap,ignored=255"
                                                                        : "confusion";
    metrics::Meters mine = make_meters({{meter}, "test"}, task, metrics::builtin_meters());
    metrics::Meters common = make_meters({{meter}, "test"}, task, metrics::builtin_meters());
    const EvaluationResult alone = evaluated(self_, mine);
    const EvaluationResult divided = evaluated(world_, common);
    EXPECT_NEAR(divided.mean_loss(), alone.mean_loss(), 1e-12 * std::abs(alone.mean_loss())) << title_of(each);
    EXPECT_GT(std::abs(alone.mean_loss()), 1e-3) << title_of(each);
    for (const std::int64_t batch_size : {1, 13}) {
      metrics::Meters none;
      const EvaluationResult other = evaluated(self_, none, each.is_of_regions ? 3 : batch_size);
      EXPECT_NEAR(other.mean_loss(), alone.mean_loss(), 1e-12 * std::abs(alone.mean_loss()))
          << title_of(each) << " " << batch_size;
    }
    EXPECT_EQ(divided.count, alone.count);
    const auto expected = mine.read().numbers;
    const auto found = common.read().numbers;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], expected[i]) << title_of(each) << " " << expected[i].first;
    }
  }
}

}  // namespace loss_agreement_test
}  // namespace lockstep::engine
