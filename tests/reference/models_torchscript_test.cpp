// SPDX-License-Identifier: BSD-3-Clause
// TorchScript archives against Python: names, outputs in both modes, three SGD steps, running statistics.
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "reference/models_families.hpp"

namespace lockstep::testing::reference {
namespace models_torchscript_test {

std::shared_ptr<models::Model> load_model(const std::filesystem::path& path, at::ScalarType type = at::kFloat) {
  Section options = Section::with_defaults("model", models::model_keys());
  options.set("name", "torchscript", "test");
  options.set("file", path.string(), "test");
  return models::build(options, Task{}, 1, type);
}

at::Tensor floats(const Json& stored) {
  const StoredNumbers values = numbers(stored);
  return torch::tensor(values.data, torch::kDouble).view(values.shape).to(at::kFloat);
}

template <class Items>
std::vector<std::string> names_of(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.key());
  return names;
}

void expect_equal(const at::Tensor& actual, const Json& stored, double tolerance, const std::string& what) {
  EXPECT_LE((actual.detach() - floats(stored)).abs().max().item<double>(), tolerance) << what;
}

constexpr double kTolerance = 2e-5;  // the file was computed in float32, by other kernels

void check_archive(const std::string& name, const Json& expected, const at::Tensor& input, const at::Tensor& target) {
  SCOPED_TRACE(name);
  require_known_fields(expected, {"parameters", "buffers", "eval_output", "train_losses", "eval_output_after",
                                  "running_mean_after", "num_batches_tracked_after"});
  const auto model = load_model(golden("models/torchscript/" + name));
  EXPECT_EQ(names_of(model->named_parameters()), expected.at("parameters").get<std::vector<std::string>>());
  EXPECT_EQ(names_of(model->named_buffers()), expected.at("buffers").get<std::vector<std::string>>());
  model->eval();
  expect_equal(model->forward(input), expected.at("eval_output"), kTolerance, "eval_output");
  model->train();
  for (const double loss : expected.at("train_losses").get<std::vector<double>>()) {
    model->zero_grad();
    const at::Tensor value = models::cross_entropy(model->forward(input), target);
    EXPECT_NEAR(value.item<double>(), loss, kTolerance);
    value.backward();
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.1);
  }
  model->eval();
  expect_equal(model->forward(input), expected.at("eval_output_after"), kTolerance, "eval_output_after");
  const auto buffers = model->named_buffers();
  expect_equal(buffers["features.1.running_mean"], expected.at("running_mean_after"), kTolerance, "running_mean");
  EXPECT_EQ(buffers["features.1.num_batches_tracked"].item<std::int64_t>(),
            expected.at("num_batches_tracked_after").get<std::int64_t>());
}

TEST(ReferenceTorchScript, TrainsAsInPython) {
  if (!std::filesystem::is_directory(root() / "models")) GTEST_SKIP() << "no reference data for models";
  const Json file = load("models/torchscript.json");
  require_known_fields(file, {"source", "how", "tolerance", "salt", "input", "target", "files"});
  const Json& input = file.at("input");
  const at::Tensor values =
      by_formula(file.at("salt").get<std::string>() + input.at("name").get<std::string>(), input.at("shape"))
          .to(at::kFloat);
  const at::Tensor target = torch::tensor(file.at("target").get<std::vector<std::int64_t>>());
  for (const auto& [name, expected] : file.at("files").items()) check_archive(name, expected, values, target);
}

TEST(ReferenceTorchScript, TracedAndScriptedMlp) {
  if (!std::filesystem::is_directory(root() / "interop/models")) GTEST_SKIP() << "no reference data for interop";
  const Json file = load("interop/models/torchscript.expected.json");
  const auto traced = load_model(golden("interop/models/mlp_traced.pt"));
  const auto scripted = load_model(golden("interop/models/mlp_scripted.pt"));
  for (std::size_t i = 0; i < file.at("inputs").size(); ++i) {
    const at::Tensor input = floats(file.at("inputs")[i]);
    expect_equal(traced->forward(input), file.at("traced")[i], 1e-5, "traced");
    expect_equal(scripted->forward(input), file.at("scripted")[i], 1e-5, "scripted");
  }
}

TEST(ReferenceTorchScript, ParametersAndFloatingPointBuffersAreConverted) {
  if (!std::filesystem::is_directory(root() / "models")) GTEST_SKIP() << "no reference data for models";
  const auto model = load_model(golden("models/torchscript/scripted.pt"), at::kDouble);
  for (const at::Tensor& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kDouble);
  EXPECT_EQ(model->named_buffers()["features.1.running_var"].scalar_type(), at::kDouble);
  EXPECT_EQ(model->named_buffers()["features.1.num_batches_tracked"].scalar_type(), at::kLong);
  EXPECT_EQ(model->forward(torch::ones({2, 3, 8, 8}, at::kDouble)).scalar_type(), at::kDouble);
}

}  // namespace models_torchscript_test
}  // namespace lockstep::testing::reference
