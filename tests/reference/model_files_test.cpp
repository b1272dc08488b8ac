// SPDX-License-Identifier: BSD-3-Clause
// Files of public libraries through init.from: names, values, outputs, gradients and statistics against the libraries.
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "engine/state/init_from.hpp"
#include "models/adapted_weights.hpp"
#include "multirank/engine/small_run.hpp"
#include "reference/models_golden.hpp"

namespace lockstep::testing::reference {
namespace model_files_test {

using engine::Settings;
using engine::SmallRun;
using engine::with;

at::Tensor stored(const Json& tensor) {
  const Numbers values = numbers(tensor);
  const at::Tensor result = torch::tensor(values.data, at::kDouble).view(values.shape);
  return values.dtype == "int64" ? result.to(at::kLong) : result;
}

double norm_of(const at::Tensor& tensor) { return tensor.detach().to(at::kDouble).norm().item<double>(); }

void expect_near_norm(const at::Tensor& actual, const Json& expected, double relative, const std::string& what) {
  const at::Tensor values = stored(expected);
  ASSERT_EQ(actual.sizes(), values.sizes()) << what;
  EXPECT_LE(norm_of(actual.detach().to(at::kDouble) - values), relative * norm_of(values)) << what;
}

class ModelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(root())) GTEST_SKIP() << "no reference data in " << root();
  }

  /// Images of three channels and ten classes.
  static Settings images(int side, int classes) {
    const std::string size = std::to_string(side);
    return {{"data.name", "synthetic"},
            {"data.shape", "3," + size + "," + size},
            {"data.size", "96"},
            {"data.classes", std::to_string(classes)},
            {"train.global_batch_size", "12"}};
  }

  /// A copy of the model that a run has after init.from, which belongs to no run.
  std::shared_ptr<models::Model> load(const Settings& settings) const {
    SmallRun run(world_, settings);
    EXPECT_TRUE(engine::init_from(run.strategy, run.sections).empty());
    const auto model = models::build(run.sections.at("model"), run.splits.train->task(), 1, at::kFloat);
    const torch::NoGradGuard no_grad;
    const models::Model& source = run.strategy.model().model();
    for (const auto& item : source.named_parameters()) model->named_parameters()[item.key()].copy_(item.value());
    for (const auto& item : source.named_buffers()) model->named_buffers()[item.key()].copy_(item.value());
    return model;
  }

  /// What init.from says; on every rank the same.
  std::string error_of(const Settings& settings) const {
    SmallRun run(world_, settings);
    try {
      engine::init_from(run.strategy, run.sections);
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
    return "";
  }

  mpi::Communicator world_ = mpi::Communicator::world();
};

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

// --- models/files.json ---

const std::map<std::string, Settings>& models_of_files() {
  static const std::map<std::string, Settings> rows = {
      {"resnet", {{"model.name", "resnet18"}, {"model.width", "2"}, {"model.stem", "small"}}},
      {"vit",
       {{"model.name", "vit"},
        {"model.patch_size", "8"},
        {"model.embed_dim", "24"},
        {"model.depth", "2"},
        {"model.num_heads", "2"}}}};
  return rows;
}

/// Files that are not taken as they are.
enum class Treatment { taken, refused, needs_reset_head, needs_channels, resized };

Treatment treatment_of(const std::string& file) {
  static const std::map<std::string, Treatment> rows = {
      {"resnet_whole_module.pth", Treatment::refused},
      {"resnet_1000_classes.safetensors", Treatment::needs_reset_head},
      {"resnet_gray.safetensors", Treatment::needs_channels},
      {"vit_grid_6x6.safetensors", Treatment::resized}};
  const auto found = rows.find(file);
  return found == rows.end() ? Treatment::taken : found->second;
}

/// Of the norm of the outputs; 16-bit weights are rounded ones.
double tolerance_of(const Json& entry) {
  const std::string dtype = entry.at("dtype");
  return dtype == "float32" ? 2e-5 : dtype == "float16" ? 2e-3 : 2e-2;
}

TEST_F(ModelFiles, EveryFileIsTakenOrRefused) {
  const Json document = reference::load("models/files.json");
  const std::string folder = (root() / "models/files/").string();
  const at::Tensor input = by_formula(document.at("salt").get<std::string>() + "input", {2, 3, 32, 32}).to(at::kFloat);
  std::map<Treatment, int> counts;
  for (const auto& [name, entry] : document.at("files").items()) {
    SCOPED_TRACE(name);
    require_known_fields(entry, {"model", "how", "expect", "dtype"});
    const std::string kind = entry.at("model");
    const Settings settings = with(with(images(32, 10), models_of_files().at(kind)), {{"init.from", folder + name}});
    const auto expect_output = [&, file = name, one = entry](const Settings& all, const std::string& key) {
      const auto model = load(all);
      expect_listing(state_lines(*model, nullptr), document.at(key).at("state_dict"));
      model->eval();
      const torch::NoGradGuard no_grad;
      expect_near_norm(model->forward(input), document.at(key).at("output"), tolerance_of(one), file);
    };
    const Treatment treatment = treatment_of(name);
    ++counts[treatment];
    switch (treatment) {
      case Treatment::taken:
        expect_output(settings, kind);
        break;
      case Treatment::refused:
        EXPECT_NE(error_of(settings).find("state_dict()"), std::string::npos);
        break;
      case Treatment::needs_reset_head: {
        const std::string error = error_of(settings);
        EXPECT_NE(error.find("[1000, 16]"), std::string::npos) << error;
        EXPECT_NE(error.find("[10, 16]"), std::string::npos) << error;
        load(with(settings, {{"init.head", "reset"}}));
        break;
      }
      case Treatment::needs_channels: {
        const std::string error = error_of(settings);
        EXPECT_NE(error.find("[2, 1, 3, 3]"), std::string::npos) << error;
        EXPECT_NE(error.find("[2, 3, 3, 3]"), std::string::npos) << error;
        load(with(settings, {{"init.adapt_channels", "true"}}));
        break;
      }
      case Treatment::resized: {
        const auto model = load(settings);
        expect_near_norm(model->named_parameters()["pos_embed"], document.at("resized_pos_embed"), 2e-6, name);
        EXPECT_NE(error_of(with(settings, {{"init.resize_positions", "false"}})).find("[1, 17, 24]"),
                  std::string::npos);
        break;
      }
    }
  }
  EXPECT_GT(counts[Treatment::taken], 10);
  EXPECT_EQ(counts.size(), 5U);
}

TEST_F(ModelFiles, TrainedWeightsBesideTheirAverage) {
  const std::string file = (root() / "models/files/resnet_ema.pth.tar").string();
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const Settings settings = with(with(images(32, 10), models_of_files().at("resnet")), {{"init.from", file}});
  const at::Tensor average = load(with(settings, {{"init.weights", "average"}}))->named_parameters()["fc.bias"];
  const at::Tensor trained = load(with(settings, {{"init.weights", "trained"}}))->named_parameters()["fc.bias"];
  EXPECT_LE((trained - average - 1).abs().max().item<double>(), 1e-6);
}

TEST_F(ModelFiles, OtherNumbersOfChannels) {
  const Json document = reference::load("models/files.json");
  for (const Json& entry : document.at("adapt_first_convolution")) {
    require_known_fields(entry, {"from", "to", "name", "shape", "result"});
    const at::Tensor weight =
        by_formula(document.at("salt").get<std::string>() + entry.at("name").get<std::string>(), entry.at("shape"))
            .to(at::kFloat);
    expect_near_norm(models::adapt_channels(weight, entry.at("to")), entry.at("result"), 1e-6, entry.at("to").dump());
  }
}

// --- interop/models ---

struct StoredModel {
  std::string name;
  Settings settings;
  std::map<std::string, std::string> own_names = {};  ///< beginnings of names in the file -> ours
};

std::string own_name(const StoredModel& stored_model, const std::string& name) {
  const std::string module = name.substr(0, name.find('.'));
  const auto found = stored_model.own_names.find(module);
  return found == stored_model.own_names.end() ? name : found->second + name.substr(module.size());
}

/// "conv1.weight" in the model under our name.
at::Tensor entry_of(const models::Model& model, const std::string& name) {
  const auto parameters = model.named_parameters();
  const auto buffers = model.named_buffers();
  if (parameters.contains(name)) return parameters[name];
  if (!buffers.contains(name)) throw std::runtime_error("the model has no " + name);
  return buffers[name];
}

class StoredModels : public ModelFiles {
 protected:
  /// |actual - expected| <= absolute + relative * |expected|
  static void expect_elements(const at::Tensor& actual, const Json& expected, const Tolerance& tolerance,
                              const std::string& what) {
    const at::Tensor values = actual.detach().to(at::kDouble).contiguous().view(-1);
    const std::vector<double> list(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
    expect_close(list, numbers(expected).data, tolerance, what);
  }

  void check(const StoredModel& stored_model) const {
    SCOPED_TRACE(stored_model.name);
    const Json document = reference::load("interop/models/" + stored_model.name + ".expected.json");
    require_known_fields(document, {"source", "how", "tolerance", "input", "target", "output", "output_eval",
                                    "output_train", "loss", "grads", "total_grad_norm", "running_stats_after", "width",
                                    "embed_dim", "num_heads", "parameter_count", "state_dict_keys"});
    // Of float32, with products and sums in another order.
    const Tolerance outputs{.absolute = 1e-6, .relative = 1e-5};
    // Batch norm divides by the deviations of few values, which enlarges what is rounded.
    const Json statistics = document.value("running_stats_after", Json::object());
    const double factor = statistics.empty() ? 1 : 4;
    const Tolerance training{.absolute = factor * 1e-6, .relative = factor * 1e-5};
    const Tolerance gradients{.absolute = factor * 1e-6, .relative = factor * 1e-4};
    for (const char* const ending : {".safetensors", ".pt"}) {
      const auto file = root() / ("interop/models/" + stored_model.name + ending);
      if (!std::filesystem::exists(file)) continue;
      const auto model = load(with(stored_model.settings, {{"init.from", file.string()}}));
      if (document.contains("state_dict_keys")) {
        std::vector<std::string> names;
        for (const auto& item : model->named_parameters()) names.push_back(item.key());
        for (const auto& item : model->named_buffers()) names.push_back(item.key());
        EXPECT_EQ(sorted(names), sorted(document.at("state_dict_keys")));
      }
      if (document.contains("parameter_count")) {
        std::int64_t count = 0;
        for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
        EXPECT_EQ(count, document.at("parameter_count").get<std::int64_t>());
      }
      const at::Tensor input = stored(document.at("input")).to(at::kFloat);
      const at::Tensor target = stored(document.at("target"));
      model->eval();
      expect_elements(model->forward(input), document.at(document.contains("output") ? "output" : "output_eval"),
                      outputs, "output");
      model->train();
      const at::Tensor output = model->forward(input);
      if (document.contains("output_train")) {
        expect_elements(output, document.at("output_train"), training, "output_train");
      }
      const at::Tensor loss = models::cross_entropy(output, target);
      expect_elements(loss, document.at("loss"), training, "loss");
      loss.backward();
      double squares = 0;
      for (const at::Tensor& parameter : model->parameters()) squares += std::pow(norm_of(parameter.grad()), 2);
      for (const auto& [name, gradient] : document.at("grads").items()) {
        expect_elements(entry_of(*model, own_name(stored_model, name)).grad(), gradient, gradients, "gradient " + name);
      }
      if (document.contains("total_grad_norm")) {
        const double norm = numbers(document.at("total_grad_norm")).data.at(0);
        EXPECT_NEAR(std::sqrt(squares), norm, gradients.relative * norm);
      }
      for (const auto& [name, value] : statistics.items()) {
        expect_elements(entry_of(*model, own_name(stored_model, name)), value, training, name);
      }
    }
  }
};

TEST_F(StoredModels, ComputeAsInPython) {
  if (!std::filesystem::is_directory(root() / "interop/models")) GTEST_SKIP() << "no reference data for interop";
  check({.name = "mlp",
         .settings = {{"model.name", "mlp"},
                      {"model.hidden", "16,16"},
                      {"data.name", "synthetic"},
                      {"data.shape", "1,1,8"},
                      {"data.size", "96"},
                      {"data.classes", "5"},
                      {"train.global_batch_size", "12"},
                      {"init.rename", "fc1=hidden0"},
                      {"init.rename", "fc2=hidden1"},
                      {"init.rename", "fc3=head"}},
         .own_names = {{"fc1", "hidden0"}, {"fc2", "hidden1"}, {"fc3", "head"}}});
  check(
      {.name = "resnet18",
       .settings = with(images(16, 10), {{"model.name", "resnet18"}, {"model.width", "8"}, {"model.stem", "small"}})});
  check({.name = "vit",
         .settings = with(images(16, 10), {{"model.name", "vit"},
                                           {"model.patch_size", "4"},
                                           {"model.embed_dim", "32"},
                                           {"model.depth", "2"},
                                           {"model.num_heads", "2"},
                                           {"model.mlp_ratio", "2"}})});
}

}  // namespace model_files_test
}  // namespace lockstep::testing::reference
