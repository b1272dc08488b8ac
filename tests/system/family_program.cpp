// SPDX-License-Identifier: BSD-3-Clause
// A user's own family of models, which a library named "paperlib" has under other names: as trainer, and as `ckpt` if
// the first argument is "ckpt".
#include <lockstep/ckpt/ckpt.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

class Tagger : public models::Model {
 public:
  Tagger(std::int64_t width, std::int64_t classes) {
    in_ = register_module("in", std::make_shared<models::Linear>(28 * 28, width));
    out_ = register_module("out", std::make_shared<models::Linear>(width, classes));
    scale_ = register_parameter("scale", torch::ones({width}));
  }
  at::Tensor forward(const at::Tensor& images) override {
    return models::run(*out_, at::relu(models::run(*in_, images.flatten(1))) * scale_);
  }

 private:
  std::shared_ptr<models::Linear> in_, out_;
  at::Tensor scale_;
};

std::shared_ptr<models::Model> make_tagger(const Section& model, const Task& task) {
  return std::make_shared<Tagger>(model.integer("tagger_width"), task.classes);
}

std::optional<families::ModelKeys> tagger_sizes(const families::TensorShapes& shapes) {
  const auto weight = shapes.find("in.weight");
  if (weight == shapes.end() || !shapes.contains("scale")) return std::nullopt;
  return families::ModelKeys{{"tagger_width", std::to_string(weight->second.front())}};
}

families::FamilyRow tagger_family() {
  return {.name = "tagger",
          .help = "two linear layers",
          .keys = {keys::integer("model.tagger_width", "0", "width of the hidden layer (tagger). 0 = of the model", 0)},
          .presets = {{.name = "tagger_small", .sizes = {{"tagger_width", "4"}}},
                      {.name = "tagger_large", .sizes = {{"tagger_width", "16"}}}},
          .head = {"out"},
          .layers = {{"in."}, {"out.", "scale"}},
          .undecayed = {"scale"},
          .sizes_of = tagger_sizes,
          .libraries = {{.name = "paperlib",
                         .names = {{"in.*", "encoder.dense.*"},
                                   {"out.*", "classifier.*"},
                                   {"scale", "encoder.scale", families::NameOperation::channel_scale}},
                         .arguments = {{.name = "hidden", .key = "tagger_width"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  const families::FamilyRow family = tagger_family();
  if (argc > 1 && std::string(argv[1]) == "ckpt") {
    std::vector<families::FamilyRow> all = families::builtin_families();
    all.push_back(family);
    return ckpt::run(argc - 1, argv + 1, all);
  }
  engine::Registry registry;
  for (models::ModelRow& row : models::models_of(family, make_tagger)) registry.models.push_back(std::move(row));
  trainer::run(argc, argv, registry);
}
