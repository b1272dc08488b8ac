// SPDX-License-Identifier: BSD-3-Clause
// Mixup and cutmix. Neither the pairs of timm (sample i with N - 1 - i) nor its boxes (with the odd pixel below and
// right) are offered; its values for given pairs and boxes are.
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include "data/mixing.hpp"
#include "kernels/pixels.hpp"
#include "reference/data.hpp"

namespace lockstep::testing::reference {

namespace {

std::vector<float> floats(const Json& tensor) {
  const StoredNumbers stored = numbers(tensor);
  return {stored.data.begin(), stored.data.end()};
}

at::Tensor tensor_of(const Json& stored) {
  const StoredNumbers values = numbers(stored);
  const at::Tensor tensor = torch::tensor(values.data, torch::kDouble).view(values.shape);
  return values.dtype == "int64" ? tensor.to(torch::kLong) : tensor;
}

/// All samples of a case, each mixed with its partner.
struct MixedSamples {
  std::vector<float> input;
  std::vector<float> target;
};

MixedSamples mix_all(const Json& document, const Json& one_case) {
  const StoredNumbers inputs = numbers(document.at("inputs"));
  const std::vector<float> values = floats(document.at("inputs"));
  const std::vector<double> labels = numbers(document.at("labels")).data;
  const bool is_of_timm = one_case.at("kind").get<std::string>().starts_with("timm");
  const bool is_cutmix = one_case.contains("box_x1y1x2y2");
  const double share = one_case.at(is_cutmix ? "lam_adjusted" : "lam");
  const std::size_t count = labels.size();
  const std::size_t row = values.size() / count;
  MixedSamples mixed{.input = values, .target = {}};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t partner = is_of_timm ? count - 1 - i : (i + count - 1) % count;
    float* const out = mixed.input.data() + i * row;
    if (is_cutmix) {
      const std::array<int, 4> corners = one_case.at("box_x1y1x2y2");
      const data::Box box{corners[1], corners[0], corners[3] - corners[1], corners[2] - corners[0]};
      data::copy_box(values.data() + partner * row, inputs.shape[1], box,
                     {inputs.shape[2] * inputs.shape[3], inputs.shape[3], 1}, out);
    } else {
      kernels::blend_rows(values.data() + i * row, values.data() + partner * row, row, share, out);
    }
    std::vector<float> target(document.at("classes").get<std::size_t>());
    data::mix_targets(static_cast<std::int64_t>(labels[i]), static_cast<std::int64_t>(labels[partner]), share,
                      one_case.value("label_smoothing", 0.0), target);
    mixed.target.insert(mixed.target.end(), target.begin(), target.end());
  }
  return mixed;
}

}  // namespace

void run_mixing_case(const Json& one_case) {
  require_known_fields(one_case, {"kind", "lam", "label_smoothing", "input", "target", "box_x1y1x2y2", "lam_adjusted"});
  const Tolerance tolerance{.absolute = 1e-6};  // stated in the file
  const MixedSamples mixed = mix_all(load("data/mixing.json"), one_case);
  expect_close({mixed.input.begin(), mixed.input.end()}, numbers(one_case.at("input")).data, tolerance, "input");
  expect_close({mixed.target.begin(), mixed.target.end()}, numbers(one_case.at("target")).data, tolerance, "target");
}

void check_mixing_boxes() {
  const Json document = load("data/mixing.json");
  for (const Json& entry : document.at("boxes")) {
    require_known_fields(entry, {"image_hw", "lam", "center_y", "center_x", "torchvision", "timm"});
    const Json& expected = entry.at("torchvision");
    const data::SampleMix mix =
        data::cut_around({entry.at("image_hw")[0], entry.at("image_hw")[1]}, entry.at("lam"),
                         entry.at("center_y").get<std::int64_t>(), entry.at("center_x").get<std::int64_t>());
    const data::Box box{expected.at("y1"), expected.at("x1"), expected.at("y2").get<int>() - mix.box.top,
                        expected.at("x2").get<int>() - mix.box.left};
    EXPECT_EQ(mix.box, box) << entry;
    EXPECT_EQ(mix.share, expected.at("lam_adjusted").get<double>()) << entry;
  }
  EXPECT_FALSE(document.at("boxes").empty());
}

void check_label_smoothing() {
  const Json stored = load("data/mixing.json").at("label_smoothing");
  const at::Tensor logits = tensor_of(stored.at("logits"));
  const at::Tensor target = tensor_of(stored.at("target"));
  const at::Tensor soft = tensor_of(stored.at("soft_target"));
  const Task task{.classes = logits.size(1)};
  const auto loss_of = [&](const std::string& name, const std::string& smoothing, const at::Tensor& wanted) {
    Section loss = Section::with_defaults("loss", models::loss_keys());
    loss.set("name", name, "test");
    loss.set("label_smoothing", smoothing, "test");
    return models::make_loss(loss, task).value(logits, batch::Batch(logits, wanted), true).item<double>();
  };
  const double tolerance = 1e-12;  // stated in the file
  for (const auto& [smoothing, expected] : stored.at("cross_entropy").items()) {
    EXPECT_NEAR(loss_of("cross_entropy", smoothing, target), expected.get<double>(), tolerance);
  }
  EXPECT_NEAR(loss_of("cross_entropy", "0", soft), stored.at("soft_cross_entropy").get<double>(), tolerance);
  EXPECT_NEAR(loss_of("cross_entropy", "0.1", soft), stored.at("timm_soft_target_cross_entropy").get<double>(),
              tolerance);
  EXPECT_NEAR(loss_of("auto", "0.1", target), stored.at("timm_label_smoothing").get<double>(), tolerance);
  EXPECT_NEAR(loss_of("bce", "0", soft), stored.at("bce_with_soft_target").get<double>(), tolerance);
}

}  // namespace lockstep::testing::reference
