// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include <algorithm>
#include <map>

#include "core/text/text.hpp"
#include "models/families/image_preprocessor.hpp"
#include "models/families/rows.hpp"
#include "models/layers/generators.hpp"

namespace lockstep::models {

namespace {

/// Section `model`, keys image_*.
Model::InputChange image_preprocessor(const Section& model) {
  try {
    return ImagePreprocessor({.mean = model.reals("image_mean"),
                              .std = model.reals("image_std"),
                              .pad_size_divisor = model.integer("image_divisor"),
                              .pad_value = model.real("image_padding"),
                              .bgr_to_rgb = model.boolean("image_reversed")});
  } catch (const ConfigError& error) {
    throw ConfigError(model.cite("image_mean") + ": " + error.what());
  }
}

/// Whether a key leaves its value to the model.
bool is_left_to_model(const Section& model, const std::string& key) {
  switch (model.values().at(key).spec.type) {
    case KeyType::integer:
      return model.integer(key) == 0;
    case KeyType::real:
      return model.real(key) < 0;
    case KeyType::integers:
      return model.integers(key).empty();
    case KeyType::choice:
      return model.text(key) == "auto";
    default:
      return false;
  }
}

/// The section with the name of a model, and with its sizes where the keys leave them to it.
Section with_sizes(Section model, const families::ModelKeys& sizes) {
  for (const auto& [key, value] : sizes) {
    if (!model.has(key)) {
      model.declare(keys::text(model.full_name(key), value, ""));
    } else if (key == "name" || is_left_to_model(model, key)) {
      model.set(key, value, model.origin(key));
    }
  }
  return model;
}

/// The family of a row, which has the name and the keys of the row unless it states them.
families::FamilyRow family_of(const ModelRow& row) {
  families::FamilyRow family = row.family;
  if (family.name.empty()) family.name = row.name;
  if (family.keys.empty()) family.keys = row.keys;
  return family;
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

std::vector<ModelRow> models_of(const families::FamilyRow& family, const MakeModel& make) {
  std::vector<families::ModelPreset> presets = family.presets;
  if (presets.empty()) presets = {{.name = family.name}};
  std::vector<ModelRow> rows;
  for (const families::ModelPreset& preset : presets) {
    families::ModelKeys sizes = {{"name", preset.name}};
    sizes.insert(sizes.end(), preset.sizes.begin(), preset.sizes.end());
    sizes.insert(sizes.end(), family.sizes.begin(), family.sizes.end());
    rows.push_back(
        {.name = preset.name,
         .help = preset.help.empty() ? family.help : preset.help,
         .keys = family.keys,
         .make = [sizes, make](const Section& model, const Task& task) { return make(with_sizes(model, sizes), task); },
         .family = family});
  }
  return rows;
}

std::vector<families::FamilyRow> families_of(const std::vector<ModelRow>& rows) {
  std::vector<families::FamilyRow> families;
  for (const ModelRow& row : rows) {
    families::FamilyRow family = family_of(row);
    const bool is_known = std::ranges::find(families, family.name, &families::FamilyRow::name) != families.end();
    if (!is_known) families.push_back(std::move(family));
  }
  return families;
}

const std::vector<ModelRow>& builtin_models() {
  static const std::map<std::string, MakeModel> makes = {
      {"mlp", make_mlp},
      {"cnn", make_cnn},
      {"gpt", make_gpt},
      {"convnext", make_convnext},
      {"unet", make_unet},
      {"torchscript", make_torchscript},
      {"resnet", make_resnet},
      {"unet_resnet", make_unet_resnet},
      {"mobilenet", make_mobilenet},
      {"efficientnet_b0", make_efficientnet},
      {"vit", make_vit},
      {"unet_classic", make_unet_classic},
      {"fno", make_fno},
  };
  static const std::vector<ModelRow> rows = [] {
    std::vector<ModelRow> all;
    for (const families::FamilyRow& family : families::builtin_families()) {
      for (ModelRow& row : models_of(family, makes.at(family.name))) all.push_back(std::move(row));
    }
    return all;
  }();
  return rows;
}

std::shared_ptr<Model> build(const Section& model, const Task& task, std::uint64_t seed, at::ScalarType dtype,
                             const std::vector<ModelRow>& rows) {
  const ModelSettings settings = ModelSettings::from(model);
  const ModelRow& row = find_row(rows, settings.name, model.cite("name"));
  seed_generators(seed, random::Stream::initialization, 0);
  std::shared_ptr<Model> built = row.make(model, task);
  if (built == nullptr) throw ConfigError(model.cite("name") + ": the function `make` of the model returned nothing");
  convert(*built, dtype);
  if (task.fields.scaling.is_used()) built->set_normalization(task.fields.scaling, dtype);
  built->set_task_kind(task.kind);
  built->set_family(family_of(row), task);
  if (settings.preprocess == "image") built->set_input_change(image_preprocessor(model));
  built->name_blocks();
  return built;
}

namespace {

/// The key as one that only model.preprocess=image reads.
KeySpec of_images(const KeySpec& key) { return keys::read_by(key, "model.preprocess", {"image"}); }

}  // namespace

KeySpecs ModelSettings::keys() {
  return keys::titled(
      "Model and preprocessing",
      {keys::text(
           "model.name", "cnn",
           "Model to train, such as mlp, cnn, gpt, resnet18, resnet50, vit_tiny_patch16_224, convnext_tiny, unet "
           "or torchscript"),
       keys::text("model.from", "",
                  "Published model: a folder of timm with config.json, or a file with the tensors of a ResNet, ViT, "
                  "ConvNeXt or U-Net. Sets model.name and its sizes, init.from, and for a folder the transforms of the "
                  "images, except those that are given"),
       keys::text("model.recompute", "",
                  "Blocks to recompute in backward instead of storing their activations (activation checkpointing): "
                  "comma-separated patterns such as block*"),
       keys::choice("model.preprocess", "none",
                    "Preprocessing of the first input on the device. image = reverse channels, normalize with mean and "
                    "standard deviation, pad at the right and bottom, and stack lists of images",
                    {"none", "image"}),
       of_images(
           keys::reals("model.image_mean", "", "image: mean, as one value or one per channel. If empty, 0 is used")),
       of_images(keys::reals(
           "model.image_std", "",
           "image: standard deviation, as one value or one per channel. Must be set together with model.image_mean")),
       of_images(keys::integer("model.image_divisor", "1", "image: pad height and width to multiples of this number", 1,
                               1 << 16)),
       of_images(keys::real("model.image_padding", "0", "image: padding value, applied after normalization")),
       of_images(keys::boolean("model.image_reversed", "false",
                               "image: reverse the order of the channels (BGR to RGB, or RGB to BGR)"))});
}

ModelSettings ModelSettings::from(const Section& model) {
  return {.name = model.text("name"),
          .recompute = words_in(model.text("recompute")),
          .preprocess = model.text("preprocess")};
}

KeySpecs model_keys(const std::vector<ModelRow>& rows) {
  return keys_of_rows(ModelSettings::keys(), rows, {"model.name"});
}

}  // namespace lockstep::models
