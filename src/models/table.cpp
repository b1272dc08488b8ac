// SPDX-License-Identifier: BSD-3-Clause
#include "core/table.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include "core/text.hpp"
#include "models/generators.hpp"
#include "models/rows.hpp"

namespace lockstep::models {

namespace {

constexpr double kMaxSize = 1 << 20;

KeySpec hidden_key() {
  return keys::integers("model.hidden", "128", "widths of the hidden layers (mlp, and the classifier of cnn)", 1,
                        kMaxSize);
}

KeySpec dropout_key() {
  return keys::real("model.dropout", "0", "probability with which dropout zeroes an element", 0, 0.95);
}

KeySpec size_key(const std::string& name, const std::string& default_value, const std::string& help) {
  return keys::integer(name, default_value, help, 1, kMaxSize);
}

/// Unlike torch::nn::Module::to, which makes real numbers of counts, too.
void convert(Model& model, at::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = model.parameters();
  for (const at::Tensor& buffer : model.buffers()) tensors.push_back(buffer);
  for (at::Tensor& tensor : tensors) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
  }
}

}  // namespace

const std::vector<ModelRow>& builtin_models() {
  static const std::vector<ModelRow> rows = {
      {"mlp", "linear layers with ReLU between them", {hidden_key(), dropout_key()}, make_mlp},
      {"cnn",
       "convolutions 3x3 with ReLU and pooling, then an mlp",
       {keys::integers("model.channels", "16,32", "output channels of the convolutions (cnn)", 1, 1 << 16),
        hidden_key(), dropout_key()},
       make_cnn},
      {"gpt",
       "decoder-only transformer with learned positions and a tied head",
       {size_key("model.layers", "4", "transformer blocks (gpt)"),
        size_key("model.heads", "4", "attention heads (gpt)"),
        size_key("model.features", "128", "width of the residual stream (gpt)"),
        keys::boolean("model.bias", "false", "biases in linear and norm layers (gpt)"), dropout_key()},
       make_gpt},
      {"resnet18",
       "residual network of 18 layers in its form for small images",
       {size_key("model.width", "64", "channels of the first of four stages, each of which doubles them (resnet18)")},
       make_resnet18},
  };
  return rows;
}

std::shared_ptr<Model> build(const Section& model, const Task& task, std::uint64_t seed, at::ScalarType dtype,
                             const std::vector<ModelRow>& rows) {
  const ModelRow& row = find_row(rows, ModelSettings::from(model).name, model.cite("name"));
  seed_generators(seed, random::Stream::initialisation, 0);
  std::shared_ptr<Model> built = row.make(model, task);
  convert(*built, dtype);
  built->name_blocks();
  return built;
}

KeySpecs ModelSettings::keys() {
  return {keys::text("model.name", "cnn", "what to train: mlp, cnn, gpt or resnet18"),
          keys::text("model.recompute", "",
                     "blocks whose forward runs again in backward instead of keeping its results: patterns with commas "
                     "between them, such as block*")};
}

ModelSettings ModelSettings::from(const Section& model) {
  return {.name = model.text("name"), .recompute = words_in(model.text("recompute"))};
}

KeySpecs model_keys(const std::vector<ModelRow>& rows) { return keys_of_rows(ModelSettings::keys(), rows); }

LossMap Model::losses(const at::Tensor& output, const at::Tensor& target) const {
  return {{"loss", cross_entropy(output, target)}};
}

at::Tensor Model::forward_all(const at::Tensor& input, const NamedTensors&) { return forward(input); }

Predictions Model::predict(const at::Tensor& output) const { return {.classes = output.argmax(-1), .masks = {}}; }

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), target.view({-1}));
}

}  // namespace lockstep::models
