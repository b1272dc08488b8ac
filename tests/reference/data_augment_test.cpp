// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <cmath>

#include "data/transforms/pipeline.hpp"
#include "data/transforms/policies.hpp"
#include "data/transforms/presets.hpp"
#include "reference/data.hpp"

namespace lockstep::testing::reference {

namespace {

using data::AugmentSpace;

void check_magnitudes(const std::string& name, const Json& entry, AugmentSpace space) {
  require_known_fields(entry, {"bins", "image_hw", "ops"});
  const data::ImageSize image{entry.at("image_hw").at(0), entry.at("image_hw").at(1)};
  const int bins = entry.at("bins");
  const Json& ops = entry.at("ops");
  EXPECT_EQ(data::magnitude_op_count(space), ops.size()) << name;
  for (std::size_t i = 0; i < data::magnitude_op_count(space); ++i) {
    const data::MagnitudeOp row = data::magnitude_op(space, i);
    ASSERT_TRUE(ops.contains(row.name)) << name << " " << row.name;
    const Json& op = ops.at(row.name);
    EXPECT_EQ(row.is_signed, op.at("signed").get<bool>()) << name << " " << row.name;
    std::vector<double> values;
    for (int bin = 0; bin < bins; ++bin) values.push_back(data::magnitude(space, i, bin, bins, image));
    const bool has_argument = !op.at("values").is_null();
    EXPECT_EQ(Json(values), has_argument ? op.at("values") : Json(std::vector<double>(values.size(), 0)))
        << name << " " << row.name;
  }
}

void check_policy(const std::string& name, const Json& entry, const std::vector<data::PolicyPair>& policy) {
  ASSERT_EQ(policy.size(), entry.size()) << name;
  for (std::size_t i = 0; i < policy.size(); ++i) {
    ASSERT_EQ(policy[i].size(), entry[i].size()) << name << " " << i;
    for (std::size_t k = 0; k < policy[i].size(); ++k) {
      const data::PolicyStep& step = policy[i][k];
      const Json level = step.level < 0 ? Json() : Json(step.level);
      EXPECT_EQ(Json::array({step.op, step.probability, level}), entry[i][k]) << name << " " << i;
    }
  }
}

void check_timm_levels(const Json& document) {
  const Json& hparams = document.at("timm_levels_hparams");
  require_known_fields(hparams, {"translate_const", "translate_pct"});
  const data::TimmTranslation translation{hparams.at("translate_const"), hparams.at("translate_pct")};
  const auto check = [&](const char* field, int sign) {
    for (const auto& [name, levels] : document.at(field).items()) {
      if (levels.is_null()) {
        EXPECT_FALSE(data::timm_argument(name, 5, sign, translation).has_value()) << name;
        continue;
      }
      for (const Json& level : levels) {
        EXPECT_EQ(data::timm_argument(name, level.at("level"), sign, translation), level.at("argument").get<double>())
            << field << " " << name << " " << level;
      }
    }
  };
  check("timm_levels", 1);
  check("timm_negated", -1);
}

void check_timm_configs(const Json& configs) {
  for (const Json& entry : configs) {
    require_known_fields(entry, {"config", "layers", "ops", "probability", "magnitude", "magnitude_std",
                                 "magnitude_max", "choice_weights", "with_replacement"});
    const data::AugmentConfig config = data::parse_timm_config(entry.at("config"));
    EXPECT_EQ(config.layers, entry.at("layers")) << entry;
    EXPECT_EQ(Json(config.ops), entry.at("ops")) << entry;
    EXPECT_EQ(config.probability, entry.at("probability")) << entry;
    EXPECT_EQ(config.magnitude, entry.at("magnitude")) << entry;
    EXPECT_EQ(config.magnitude_std, number(entry.at("magnitude_std"))) << entry;
    EXPECT_EQ(config.magnitude_max > 0 ? Json(config.magnitude_max) : Json(), entry.at("magnitude_max")) << entry;
    EXPECT_EQ(config.weights.empty(), entry.at("with_replacement").get<bool>()) << entry;
    EXPECT_EQ(config.weights.empty(), entry.at("choice_weights").is_null()) << entry;
    if (!config.weights.empty()) {  // the sums are taken in another order
      expect_close(config.weights, entry.at("choice_weights"), {.relative = 1e-14}, "weights");
    }
  }
}

void check_applied_ops(const Json& applied) {
  for (const Json& entry : applied) {
    require_known_fields(entry, {"op", "magnitude", "filter", "sha256", "pixels"});
    data::Workspace workspace;
    data::Image image = load_image("augment/x.npy");
    const data::DrawnOp drawn{data::op_named(entry.at("op").get<std::string>()), data::filter_named(entry.at("filter")),
                              entry.at("magnitude")};
    data::apply_op(image, drawn, {}, workspace);
    expect_digest(image, entry, "pixels");
  }
}

void check_multi_crop(const Json& presets) {
  for (const auto& [name, groups] : presets.items()) {
    const data::Pipeline pipeline({.lines = data::expand_preset(name, 224).train});
    std::string scales;
    int crop = 0;
    for (const Json& group : groups) {
      for (int i = 0; i < group.at(0).get<int>(); ++i, ++crop) {
        const int side = group.at(1);
        EXPECT_EQ(pipeline.size(std::nullopt, crop), (data::ImageSize{side, side})) << name;
      }
      scales += (scales.empty() ? "" : ",") + group.at(2).dump() + "," + group.at(3).dump();
    }
    EXPECT_EQ(pipeline.crops(), crop) << name;
    const std::string line = data::expand_preset(name, 224).train.front();
    std::string expected = scales;  // "1.0" is written "1"
    while (expected.find(".0,") != std::string::npos) expected.erase(expected.find(".0,"), 2);
    if (expected.ends_with(".0")) expected.resize(expected.size() - 2);
    EXPECT_NE(line.find("scales=" + expected), std::string::npos) << line << " " << expected;
  }
}

}  // namespace

void check_augment_tables() {
  const Json document = load("data/augment_tables.json");
  const Json& torchvision = document.at("torchvision");
  require_known_fields(torchvision, {"AutoAugment", "RandAugment", "TrivialAugmentWide"});
  check_magnitudes("AutoAugment", torchvision.at("AutoAugment"), AugmentSpace::auto_augment);
  check_magnitudes("RandAugment", torchvision.at("RandAugment"), AugmentSpace::rand_augment);
  check_magnitudes("TrivialAugmentWide", torchvision.at("TrivialAugmentWide"), AugmentSpace::trivial_augment_wide);
  for (const auto& [name, policy] : document.at("torchvision_policies").items()) {
    check_policy(name, policy, data::torchvision_policy(name));
  }
  for (const auto& [name, policy] : document.at("timm_policies").items()) {
    check_policy(name, policy, data::timm_policy(name));
  }
  check_timm_levels(document);
  check_timm_configs(document.at("timm_configs"));
  check_applied_ops(document.at("applied"));
  check_multi_crop(document.at("multi_crop"));
}

}  // namespace lockstep::testing::reference
