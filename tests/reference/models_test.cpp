// SPDX-License-Identifier: BSD-3-Clause
// Losses and models against PyTorch, torchvision and timm.
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/mixing.hpp"
#include "reference/models_families.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace models_test {

/// `times` * v of the formula that the file states.
at::Tensor formula(const Json& stored) {
  return by_formula("a/" + stored.at("name").get<std::string>(), stored.at("shape"), stored.value("times", 1.0));
}

at::Tensor doubles(const Json& stored) {
  const Numbers values = numbers(stored);
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
  return doubles(target.at(target.contains("multi") ? "multi" : "soft"));
}

void run_loss(const Json& one_case) {
  require_known_fields(one_case, {"name", "logits", "label_smoothing", "how", "target", "loss", "gradient"});
  const std::string name = one_case.at("name");
  const at::Tensor logits = formula(one_case.at("logits")).requires_grad_();
  const bool is_bce = name.starts_with("bce");
  Section loss = Section::with_defaults("loss", models::loss_keys());
  loss.set("name", is_bce ? "bce" : "cross_entropy", "test");
  loss.set("label_smoothing", std::to_string(one_case.value("label_smoothing", 0.0)), "test");
  const bool has_labels = one_case.at("target").contains("multi");
  const Task task{.classes = logits.size(1), .kind = has_labels ? TaskKind::multilabel : TaskKind::classification};
  const at::Tensor value =
      models::make_loss(loss, task)(logits, target_of(one_case.at("target"), logits.size(1)), true);
  EXPECT_NEAR(value.item<double>(), one_case.at("loss").get<double>(), 1e-12);
  value.backward();
  EXPECT_LE((logits.grad() - doubles(one_case.at("gradient"))).abs().max().item<double>(), 1e-12);
}

TEST(ReferenceModels, Files) {
  run_topic("models", {{.file = "losses.json", .extra_fields = {"salt", "formula", "mixup_targets"}, .run = run_loss},
                       golden_models("convnets.json", convnet_model),
                       golden_models("resnet.json", resnet_model, {"zero_init_residual"}),
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

}  // namespace models_test
}  // namespace lockstep::testing::reference
