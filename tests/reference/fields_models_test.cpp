// SPDX-License-Identifier: BSD-3-Clause
// Models of fields against neuraloperator, The Well and plain U-Nets.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "fields.hpp"
#include "reference/models_golden.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace fields_models_test {

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// "4,6" of [4, 6], and "0.25" of 0.25.
std::string list_of(const Json& value) {
  std::string text;
  for (const Json& element : value.is_array() ? value : Json::array({value})) {
    text += (text.empty() ? "" : ",") + text_of(element);
  }
  return text;
}

/// A regression with one name for each channel of the target.
Task field_task(const Json& one_case) {
  const std::vector<std::int64_t> input = one_case.at("input").at("shape");
  Task task{.sample_shape = {input.begin() + 1, input.end()}, .kind = TaskKind::regression};
  const std::int64_t channels = one_case.at("target").at("shape").at(1);
  for (std::int64_t i = 0; i < channels; ++i) task.fields.channels.push_back("channel" + std::to_string(i));
  return task;
}

/// The mean over samples and channels of ||o - y|| / (||y|| + 1e-8).
at::Tensor relative_distance(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor distance = (output - target).flatten(2).norm(2, {2});
  return (distance / (target.flatten(2).norm(2, {2}) + 1e-8)).mean();
}

std::string fno_norm(const Json& norm) {
  if (norm.is_null()) return "none";
  if (norm == "group_norm") return "one_group";
  if (norm == "instance_norm") return "instance";
  throw std::runtime_error("no norm for " + norm.dump());
}

std::map<std::string, std::string> fno_keys(const Json& arguments) {
  // Options without a key of the model must be as they are in all cases.
  EXPECT_EQ(arguments.at("separable"), false);
  EXPECT_TRUE(arguments.at("stabilizer").is_null());
  EXPECT_EQ(arguments.value("activation", "gelu (exact)"), "gelu (exact)");
  EXPECT_EQ(arguments.value("complex_weights", "dense"), "dense");
  std::map<std::string, std::string> keys = {
      {"name", "fno"},
      {"modes", list_of(arguments.at("n_modes"))},
      {"width", text_of(arguments.at("hidden_channels"))},
      {"depth", text_of(arguments.at("n_layers"))},
      {"lifting_ratio", text_of(arguments.at("lifting_channel_ratio"))},
      {"projection_ratio", text_of(arguments.at("projection_channel_ratio"))},
      {"grid", arguments.at("positional_embedding") == "grid" ? "true" : "false"},
      {"norm", fno_norm(arguments.at("norm"))},
      {"channel_mlp", text_of(arguments.at("use_channel_mlp"))},
      {"mlp_ratio", text_of(arguments.at("channel_mlp_expansion"))},
      {"mlp_skip", text_of(arguments.at("channel_mlp_skip"))},
      {"skip", text_of(arguments.at("fno_skip"))},
      {"preactivation", text_of(arguments.at("preactivation"))}};
  if (!arguments.at("domain_padding").is_null()) keys["domain_padding"] = list_of(arguments.at("domain_padding"));
  return keys;
}

std::map<std::string, std::string> unet_keys(const Json& arguments) {
  return {{"name", "unet"},
          {"width", text_of(arguments.at("width"))},
          {"depth", text_of(arguments.at("depth"))},
          {"padding", list_of(arguments.at("padding"))},
          {"norm", text_of(arguments.at("norm"))},
          {"up", text_of(arguments.at("up"))}};
}

GoldenModel field_model(const Json& one_case) {
  GoldenModel golden{.keys = field_model_keys(one_case), .task = field_task(one_case)};
  if (golden.keys.at("name") == "fno") golden.public_state = complex_state;
  const std::string loss = one_case.at("loss");
  if (loss == "relative_l2") golden.loss = relative_distance;
  if (loss != "relative_l2" && loss != "mse") throw std::runtime_error("no loss for " + loss);
  EXPECT_EQ(one_case.at("dimensions"), std::ssize(golden.task.sample_shape) - 1);
  return golden;
}

}  // namespace fields_models_test

std::vector<StateEntry> complex_state(std::vector<StateEntry> entries) {
  for (StateEntry& entry : entries) {
    if (!entry.name.ends_with(".weight.tensor")) continue;
    entry.is_complex = entry.shape.back() == 2;
    entry.shape.pop_back();
  }
  return entries;
}

std::map<std::string, std::string> field_model_keys(const Json& model) {
  const std::string family = model.at("family");
  const Json& arguments = model.at("arguments");
  if (family == "neuralop.models.FNO") return fields_models_test::fno_keys(arguments);
  if (family == "the_well.benchmark.models.UNetClassic") {
    return {{"name", "unet_classic"}, {"width", fields_models_test::text_of(arguments.at("init_features"))}};
  }
  if (family == "unet") return fields_models_test::unet_keys(arguments);
  throw std::runtime_error("no model for " + family);
}

Handler field_models() { return golden_models("models.json", fields_models_test::field_model, {}, "fields"); }

}  // namespace lockstep::testing::reference
