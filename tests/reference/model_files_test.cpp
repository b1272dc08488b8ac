// SPDX-License-Identifier: BSD-3-Clause
// Files of public libraries through init.from: names, values, outputs, gradients and statistics against the libraries.
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "checkpoints/foreign/foreign.hpp"
#include "engine/setup/init_from.hpp"
#include "models/layers/initial_values.hpp"
#include "multirank/engine/small_run.hpp"
#include "reference/models_golden.hpp"

namespace lockstep::testing::reference {
namespace model_files_test {

using engine::Settings;
using engine::SmallRun;
using engine::with;

at::Tensor stored(const Json& tensor) {
  const StoredNumbers values = numbers(tensor);
  const at::Tensor result = torch::tensor(values.data, at::kDouble).view(values.shape);
  return values.dtype == "int64" ? result.to(at::kLong) : result;
}

double norm_of(const at::Tensor& tensor) { return tensor.detach().to(at::kDouble).norm().item<double>(); }

void expect_near_norm(const at::Tensor& actual, const Json& expected, double relative, const std::string& what) {
  const at::Tensor values = stored(expected);
  ASSERT_EQ(actual.sizes(), values.sizes()) << what;
  EXPECT_LE(norm_of(actual.detach().to(at::kDouble) - values), relative * norm_of(values)) << what;
}

/// "3,32,32"
std::string text_of(const std::vector<std::int64_t>& values, const std::string& separator) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : separator) + std::to_string(value);
  return text;
}

class ModelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(root())) GTEST_SKIP() << "no reference data in " << root();
  }

  /// Synthetic samples of a shape without the batch.
  static Settings samples(const std::vector<std::int64_t>& shape, std::int64_t classes) {
    return {{"data.name", "synthetic"},
            {"data.shape", text_of(shape, ",")},
            {"data.size", "96"},
            {"data.classes", std::to_string(classes)},
            {"train.global_batch_size", "12"}};
  }

  /// A copy of the model that a run has after init.from, which belongs to no run.
  std::shared_ptr<models::Model> load(const Settings& settings) const {
    SmallRun run(world_, settings);
    EXPECT_TRUE(engine::init_from(run.resources.world, *run.model.wrapper, run.sections).empty());
    const auto model = models::build(run.sections.at("model"), run.splits.train->task(), 1, at::kFloat);
    const torch::NoGradGuard no_grad;
    const models::Model& source = run.model.wrapper->model();
    for (const auto& item : source.named_parameters()) model->named_parameters()[item.key()].copy_(item.value());
    for (const auto& item : source.named_buffers()) model->named_buffers()[item.key()].copy_(item.value());
    return model;
  }

  /// The sentence that init.from says; on every rank the same.
  std::string error_of(const Settings& settings) const {
    SmallRun run(world_, settings);
    try {
      engine::init_from(run.resources.world, *run.model.wrapper, run.sections);
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

using Shape = std::vector<std::int64_t>;

/// The shapes of a state by name, as its listing or its file has them.
using Shapes = std::map<std::string, Shape>;

Shapes shapes_of(const Json& document) {
  Shapes shapes;
  for (const StateEntry& entry : state_of(document)) shapes[entry.name] = entry.shape;
  return shapes;
}

/// Settings of a ResNet whose stem is small, or of a ViT, as far as the shapes of its state tell them.
Settings resnet_settings(const Shapes& shapes) {
  return {{"model.name", "resnet18"},
          {"model.width", std::to_string(shapes.at("conv1.weight").at(0))},
          {"model.stem", "small"}};
}

Settings vit_settings(const Shapes& shapes, std::int64_t heads) {
  const Shape& patches = shapes.at("patch_embed.proj.weight");
  std::int64_t depth = 0;
  while (shapes.contains("blocks." + std::to_string(depth) + ".norm1.weight")) ++depth;
  const double ratio =
      static_cast<double>(shapes.at("blocks.0.mlp.fc1.weight").at(0)) / static_cast<double>(patches[0]);
  return {{"model.name", "vit"},
          {"model.patch_size", std::to_string(patches.at(2))},
          {"model.embed_dim", std::to_string(patches.at(0))},
          {"model.depth", std::to_string(depth)},
          {"model.num_heads", std::to_string(heads)},
          {"model.mlp_ratio", std::to_string(ratio)}};
}

/// The file models/files.json.
struct ModelFilesDocument {
  Json json = reference::load("models/files.json");
  /// Options of VisionTransformer(...) in the text of `how`.
  Json vit_options = [this] {
    const std::string how = json.at("how");
    const std::size_t begin = how.find("VisionTransformer(");
    return options_of({{"what", how.substr(std::min(begin, how.size()))}});
  }();

  /// A field that our copy has, else the option in `how`.
  std::int64_t number(const char* field, const char* option) const {
    return json.contains(field) ? json.at(field).get<std::int64_t>() : vit_options.at(option).get<std::int64_t>();
  }
  std::int64_t side() const { return number("image_size", "img_size"); }
  Shapes shapes(const std::string& kind) const { return shapes_of(json.at(kind)); }
  Settings settings(const std::string& kind) const {
    return kind == "vit" ? vit_settings(shapes(kind), number("num_heads", "num_heads")) : resnet_settings(shapes(kind));
  }
  Shape first(const std::string& kind) const {
    return shapes(kind).at(kind == "vit" ? "patch_embed.proj.weight" : "conv1.weight");
  }
  Shape head(const std::string& kind) const { return shapes(kind).at(kind == "vit" ? "head.weight" : "fc.weight"); }
  /// The shape of one image.
  Shape sample_shape(const std::string& kind) const { return {first(kind).at(1), side(), side()}; }
  /// The shape of the input of a case.
  Shape input_shape(const std::string& kind) const {
    const Shape one = sample_shape(kind);
    return {json.at(kind).at("output").at("shape").at(0).get<std::int64_t>(), one[0], one[1], one[2]};
  }
};

/// Files that are not taken as they are.
enum class Treatment { taken, refused, needs_reset_head, needs_channels, resized };

/// The treatment that the field `expect` asks for.
Treatment treatment_of(const std::string& expect) {
  const auto mentions = [&](const char* words) { return expect.find(words) != std::string::npos; };
  if (mentions("init.resize_positions")) return Treatment::resized;
  if (!expect.starts_with("refused")) return Treatment::taken;
  if (mentions("init.head=reset")) return Treatment::needs_reset_head;
  return mentions("adapting") ? Treatment::needs_channels : Treatment::refused;
}

/// "[1000, 16]" of the array that holds `part` in its name in a file.
std::string shape_in_file(const std::string& file, const std::string& part) {
  const checkpoints::Archive archive = checkpoints::read_foreign(file);
  for (const std::string& path : archive.array_paths()) {
    if (path.ends_with("/" + part)) return "[" + text_of(archive.array(path).shape, ", ") + "]";
  }
  throw std::runtime_error(file + " has no " + part);
}

std::string bracketed(const Shape& shape) { return "[" + text_of(shape, ", ") + "]"; }

/// The tolerance of the norm of the outputs; 16-bit weights are rounded ones.
double tolerance_of(const Json& entry) {
  const std::string dtype = entry.at("dtype");
  return dtype == "float32" ? 2e-5 : dtype == "float16" ? 2e-3 : 2e-2;
}

TEST_F(ModelFiles, EveryFileIsTakenOrRefused) {
  const ModelFilesDocument files;
  const Json& document = files.json;
  int taken = 0;
  for (const auto& [name, entry] : document.at("files").items()) {
    SCOPED_TRACE(name);
    require_known_fields(entry, {"model", "how", "expect", "dtype"});
    const std::string kind = entry.at("model");
    const std::string path = golden("models/files/" + name);
    const Settings data = samples(files.sample_shape(kind), files.head(kind).at(0));
    const Settings settings = with(with(data, files.settings(kind)), {{"init.from", path}});
    const at::Tensor input =
        by_formula(document.at("salt").get<std::string>() + "input", files.input_shape(kind)).to(at::kFloat);
    const auto expect_output = [&, file = name, one = entry](const Settings& all, const std::string& key) {
      const auto model = load(all);
      expect_listing(state_lines(*model, nullptr), document.at(key).at("state_dict"));
      model->eval();
      const torch::NoGradGuard no_grad;
      expect_near_norm(model->forward(input), document.at(key).at("output"), tolerance_of(one), file);
    };
    switch (treatment_of(entry.at("expect"))) {
      case Treatment::taken:
        ++taken;
        expect_output(settings, kind);
        break;
      case Treatment::refused:
        EXPECT_NE(error_of(settings).find("state_dict()"), std::string::npos);
        break;
      case Treatment::needs_reset_head: {
        const std::string error = error_of(settings);
        EXPECT_NE(error.find(shape_in_file(path, "fc.weight")), std::string::npos) << error;
        EXPECT_NE(error.find(bracketed(files.head(kind))), std::string::npos) << error;
        load(with(settings, {{"init.head", "reset"}}));
        break;
      }
      case Treatment::needs_channels: {
        const std::string error = error_of(settings);
        EXPECT_NE(error.find(shape_in_file(path, "conv1.weight")), std::string::npos) << error;
        EXPECT_NE(error.find(bracketed(files.first(kind))), std::string::npos) << error;
        load(with(settings, {{"init.adapt_channels", "true"}}));
        break;
      }
      case Treatment::resized: {
        const auto model = load(settings);
        expect_near_norm(model->named_parameters()["pos_embed"], document.at("resized_pos_embed"), 2e-6, name);
        EXPECT_NE(error_of(with(settings, {{"init.resize_positions", "false"}}))
                      .find(bracketed(files.shapes(kind).at("pos_embed"))),
                  std::string::npos);
        break;
      }
    }
  }
  EXPECT_GT(taken, 0);
}

TEST_F(ModelFiles, TrainedWeightsBesideTheirAverage) {
  const std::string file = golden("models/files/resnet_ema.pth.tar");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const ModelFilesDocument files;
  const Settings data = samples(files.sample_shape("resnet"), files.head("resnet").at(0));
  const Settings settings = with(with(data, files.settings("resnet")), {{"init.from", file}});
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

/// The model of a file interop/models/<name>.expected.json.
struct StoredModel {
  std::string name;
  std::function<Settings(const Json& document, const Shapes& shapes)> settings_of;
  std::map<std::string, std::string> own_names = {};  ///< beginnings of names in the file -> ours
};

std::string own_name(const StoredModel& stored_model, const std::string& name) {
  const std::string module = name.substr(0, name.find('.'));
  const auto found = stored_model.own_names.find(module);
  return found == stored_model.own_names.end() ? name : found->second + name.substr(module.size());
}

/// The shapes of the arrays in a file.
Shapes shapes_in(const std::string& file) {
  const checkpoints::Archive archive = checkpoints::read_foreign(file);
  Shapes shapes;
  for (const std::string& path : archive.array_paths()) {
    const std::string name = path.substr(1);
    shapes[name] = archive.array(path).shape;
  }
  return shapes;
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
    // Outputs of float32, with products and sums in another order.
    const Tolerance outputs{.absolute = 1e-6, .relative = 1e-5};
    // Batch norm divides by the deviations of few values, which enlarges what is rounded.
    const Json statistics = document.value("running_stats_after", Json::object());
    const double factor = statistics.empty() ? 1 : 4;
    const Tolerance training{.absolute = factor * 1e-6, .relative = factor * 1e-5};
    const Tolerance gradients{.absolute = factor * 1e-6, .relative = factor * 1e-4};
    for (const char* const ending : {".safetensors", ".pt"}) {
      const std::string file = golden("interop/models/" + stored_model.name + ending);
      if (!std::filesystem::exists(file)) continue;
      Shape sample = document.at("input").at("shape");
      sample.erase(sample.begin());
      if (sample.size() == 1) sample.insert(sample.begin(), {1, 1});
      const Json& output_shape = document.at(document.contains("output") ? "output" : "output_eval").at("shape");
      const Settings settings =
          with(samples(sample, output_shape.at(1)), stored_model.settings_of(document, shapes_in(file)));
      const auto model = load(with(settings, {{"init.from", file}}));
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
         .settings_of =
             [](const Json&, const Shapes& shapes) {
               const Shape hidden = {shapes.at("fc1.weight").at(0), shapes.at("fc2.weight").at(0)};
               return Settings{{"model.name", "mlp"},
                               {"model.hidden", text_of(hidden, ",")},
                               {"init.rename", "fc1=hidden0"},
                               {"init.rename", "fc2=hidden1"},
                               {"init.rename", "fc3=head"}};
             },
         .own_names = {{"fc1", "hidden0"}, {"fc2", "hidden1"}, {"fc3", "head"}}});
  check({.name = "resnet18", .settings_of = [](const Json&, const Shapes& shapes) { return resnet_settings(shapes); }});
  check({.name = "vit", .settings_of = [](const Json& document, const Shapes& shapes) {
           return vit_settings(shapes, document.at("num_heads"));
         }});
}

}  // namespace model_files_test
}  // namespace lockstep::testing::reference
