// SPDX-License-Identifier: BSD-3-Clause
// Losses and models against PyTorch, torchvision and timm.
#include <lockstep/metrics/meter.hpp>
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "data/mixing.hpp"
#include "models/losses/distillation.hpp"
#include "reference/models_families.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace models_test {

/// `times` * v of the formula that the file states.
at::Tensor formula(const Json& stored) {
  return by_formula("a/" + stored.at("name").get<std::string>(), stored.at("shape"), stored.value("times", 1.0));
}

at::Tensor doubles(const Json& stored) {
  const StoredNumbers values = numbers(stored);
  return torch::tensor(values.data, torch::kDouble).view(values.shape);
}

at::Tensor classes_of(const Json& list) { return torch::tensor(list.get<std::vector<std::int64_t>>(), torch::kLong); }

/// Probabilities of two classes each, which are float32 there, too.
at::Tensor mixed(const Json& target, std::int64_t classes) {
  const std::vector<std::int64_t> first = target.at("classes");
  const std::vector<std::int64_t> second = target.at("second");
  const at::Tensor soft = torch::zeros({std::ssize(first), classes});
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::span row(soft.data_ptr<float>() + static_cast<std::int64_t>(i) * classes,
                        static_cast<std::size_t>(classes));
    data::mix_targets(first[i], second[i], target.at("share of the first"), 0, row);
  }
  return soft;
}

at::Tensor target_of(const Json& target, std::int64_t classes) {
  if (target.contains("second")) return mixed(target, classes);
  if (target.contains("classes")) return classes_of(target.at("classes"));
  for (const char* kind : {"multi", "soft", "real"}) {
    if (target.contains(kind)) return doubles(target.at(kind));
  }
  return doubles(target.at("mask")).to(torch::kLong);
}

/// The loss of a case, and the kind of its task.
struct LossOfCase {
  const char* prefix;
  const char* name;
  TaskKind kind;
};

LossOfCase loss_of_case(const std::string& name) {
  constexpr LossOfCase kRows[] = {{"bce_of_classes", "bce", TaskKind::classification},
                                  {"bce", "bce", TaskKind::multilabel},
                                  {"focal", "focal", TaskKind::multilabel},
                                  {"mse", "mse", TaskKind::regression},
                                  {"l1", "l1", TaskKind::regression},
                                  {"huber", "huber", TaskKind::regression},
                                  {"smooth_l1", "smooth_l1", TaskKind::regression},
                                  {"pixels_plus_dice", "pixels+dice", TaskKind::segmentation},
                                  {"pixels", "pixels", TaskKind::segmentation},
                                  {"distillation", "distill", TaskKind::classification},
                                  {"dice", "dice", TaskKind::segmentation},
                                  {"jaccard", "jaccard", TaskKind::segmentation}};
  for (const LossOfCase& row : kRows) {
    if (name.starts_with(row.prefix)) return row;
  }
  return {"", "cross_entropy", TaskKind::classification};
}

std::string list_text(const Json& stored) {
  std::ostringstream text;
  text.precision(17);
  for (const double value : numbers(stored).data) text << (text.tellp() > 0 ? "," : "") << value;
  return text.str();
}

/// The field, or the factor in the text "cross entropy + 0.5 dice"; empty for other losses.
std::string dice_weight_of(const Json& one_case) {
  if (one_case.contains("dice_weight")) return one_case.at("dice_weight").dump();
  std::smatch found;
  const std::string how = one_case.value("how", "");
  return std::regex_search(how, found, std::regex(R"(\+ ([0-9.]+) dice)")) ? found[1].str() : "";
}

/// The loss of a case, with its teacher, if it has one.
models::Loss made_loss(const Json& one_case, const Section& loss, const Task& task) {
  if (!one_case.contains("teacher")) return models::make_loss(loss, task);
  const auto teacher = [&](const batch::Batch&) { return doubles(one_case.at("teacher")); };
  return models::with_teacher(loss, task, {.alpha = one_case.at("alpha"), .temperature = one_case.at("temperature")},
                              teacher);
}

void run_loss(const Json& one_case) {
  require_known_fields(
      one_case, {"name", "logits", "label_smoothing", "class_weights", "pos_weight", "alpha", "gamma", "delta", "beta",
                 "smooth", "dice_weight", "how", "target", "loss", "gradient", "teacher", "temperature"});
  const std::string name = one_case.at("name");
  const at::Tensor logits = formula(one_case.at("logits")).requires_grad_();
  const LossOfCase row = loss_of_case(name);
  Section loss = Section::with_defaults("loss", models::loss_keys());
  loss.set("name", row.name, "test");
  for (const char* key : {"label_smoothing", "alpha", "gamma", "delta", "beta", "smooth"}) {
    if (one_case.contains(key)) loss.set(key, std::to_string(one_case.at(key).get<double>()), "test");
  }
  for (const char* key : {"class_weights", "pos_weight"}) {
    if (one_case.contains(key)) loss.set(key, list_text(one_case.at(key)), "test");
  }
  if (const std::string weight = dice_weight_of(one_case); !weight.empty()) loss.set("dice_weight", weight, "test");
  const Task task{.classes = logits.size(1), .kind = row.kind};
  at::Tensor target = target_of(one_case.at("target"), logits.size(1));
  if (one_case.at("target").contains("soft") &&
      one_case.contains("label_smoothing")) {  // train.mix smooths such targets
    const double smoothing = one_case.at("label_smoothing");
    target = target * (1 - smoothing) + smoothing / static_cast<double>(logits.size(1));
  }
  const batch::Batch batch(logits.detach(), target);
  const at::Tensor value = made_loss(one_case, loss, task).value(logits, batch, /*is_training=*/true);
  EXPECT_NEAR(value.item<double>(), one_case.at("loss").get<double>(), 1e-12);
  value.backward();
  EXPECT_LE((logits.grad() - doubles(one_case.at("gradient"))).abs().max().item<double>(), 1e-12);
}

TEST(ReferenceModels, Files) {
  run_topic(
      "models",
      {{.file = "losses.json", .extra_fields = {"salt", "formula", "mixup_targets", "segmentation"}, .run = run_loss},
       golden_models("convnets.json", convnet_model),
       // a file of ModelFiles
       {.file = "files.json",
        .extra_fields = {"salt", "files", "resnet", "vit", "image_size", "num_heads", "resized_pos_embed",
                         "adapt_first_convolution"}},
       golden_models("resnet.json", resnet_model, {"zero_init_residual"}),
       // a file of ReferenceOutlines
       {.file = "state_dicts.json", .extra_fields = {"models", "listings"}},
       // a file of ReferenceTorchScript
       {.file = "torchscript.json", .extra_fields = {"salt", "input", "target", "files"}},
       golden_models("unet.json", unet_model),
       golden_models("vit.json", vit_model, {"position_embedding_resize", "drop_path"})});
}

// Stored as float64, but computed in float32 there: within its rounding.
TEST(ReferenceModels, MixedTargets) {
  if (!std::filesystem::is_directory(root() / "models")) GTEST_SKIP() << "no reference data for models";
  for (const Json& entry : load("models/losses.json").at("mixup_targets")) {
    require_known_fields(entry, {"classes", "smoothing", "share", "target", "soft"});
    const std::vector<std::int64_t> target = entry.at("target");
    std::vector<double> soft;
    for (std::size_t i = 0; i < target.size(); ++i) {
      std::vector<float> row(entry.at("classes").get<std::size_t>());
      data::mix_targets(target[i], target[target.size() - 1 - i], entry.at("share"), entry.at("smoothing"), row);
      soft.insert(soft.end(), row.begin(), row.end());
    }
    expect_close(soft, numbers(entry.at("soft")).data, {.absolute = 1e-7}, "soft");
  }
}

// Stored as float32 there: within its rounding.
TEST(ReferenceModels, SegmentationMetrics) {
  if (!std::filesystem::is_directory(root() / "models")) GTEST_SKIP() << "no reference data for models";
  const Json stored = load("models/losses.json").at("segmentation");
  require_known_fields(stored, {"prediction", "target", "iou_per_class", "dice_per_class", "micro_iou"});
  const at::Tensor prediction = doubles(stored.at("prediction")).to(torch::kLong);
  const at::Tensor target = doubles(stored.at("target")).to(torch::kLong);
  const std::vector<double> iou = stored.at("iou_per_class");
  const metrics::Meter meter = metrics::make_meter("overlap", std::ssize(iou), "test");
  std::vector<std::int64_t> words(meter.words);
  for (std::int64_t i = 0; i < target.size(0); ++i) {
    const at::Tensor scores = at::one_hot(prediction.narrow(0, i, 1), std::ssize(iou)).movedim(-1, 1);
    meter.add(metrics::samples_of(scores, target.narrow(0, i, 1), i), words);
  }
  const metrics::Reading reading = meter.read(words);
  expect_close(reading.tables.at(0).values, iou, {.absolute = 1e-7}, "iou");
  expect_close(reading.tables.at(2).values, stored.at("dice_per_class"), {.absolute = 1e-7}, "dice");
  EXPECT_NEAR(reading.numbers.at(0), (iou[0] + iou[1] + iou[2]) / 3, 1e-7) << "miou";
  // Each wrong pixel is counted once as missing and once as too much over all classes.
  const double right = reading.numbers.at(3);
  EXPECT_NEAR(right / (2 - right), stored.at("micro_iou").get<double>(), 1e-7);
}

}  // namespace models_test
}  // namespace lockstep::testing::reference
