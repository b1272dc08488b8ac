// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/table.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>

#include <torch/types.h>

#include "core/text/text.hpp"
#include "models/families/image_preprocessor.hpp"
#include "models/families/rows.hpp"
#include "models/layers/generators.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::models {

namespace {

constexpr double kMaxSize = 1 << 20;

KeySpec size_key(const std::string& name, const std::string& default_value, const std::string& help) {
  return keys::integer(name, default_value, help, 1, kMaxSize);
}

KeySpec hidden_key() {
  return keys::integers("model.hidden", "128", "Widths of the hidden layers (mlp, and the classifier of cnn)", 1,
                        kMaxSize);
}

KeySpec dropout_key() { return keys::real("model.dropout", "0", "Dropout probability", 0, 0.95); }

KeySpec drop_path_key() {
  return keys::real("model.drop_path", "-1",
                    "Stochastic depth: probability that a sample skips the last block in training. It decreases "
                    "linearly to 0 at the first block. -1 = that of the model: 0.2 (efficientnet_b0) or 0",
                    -1, 0.95);
}

KeySpecs mobile_keys() {
  return {keys::real_above("model.width_mult", 0, 64, "1",
                           "Factor on the channels of all convolutions, which stay multiples of 8 (mobilenet_*, "
                           "efficientnet_b0)"),
          keys::real("model.head_dropout", "0.2",
                     "Dropout probability before the last layer (mobilenet_*, efficientnet_b0)", 0, 0.95)};
}

KeySpecs efficientnet_keys() {
  KeySpecs keys = mobile_keys();
  keys.push_back(drop_path_key());
  return keys;
}

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

KeySpecs convnext_keys() {
  return {
      keys::integers("model.depths", "",
                     "Number of blocks of each stage (convnext). If empty, that of the model, or 3,3,9,3", 1, 1024),
      keys::integers("model.widths", "",
                     "Channels of each stage (convnext). If empty, those of the model, or 96,192,384,768", 1, kMaxSize),
      drop_path_key()};
}

KeySpec norm_key() {
  return keys::choice("model.norm", "auto",
                      "Normalization between the layers: batch, group (of 8 groups of channels, for small batches), "
                      "layer or none. auto = batch (unet) or none (mlp)",
                      {"auto", "batch", "group", "layer", "none"});
}

KeySpec width_key() {
  return size_key("model.width", "64",
                  "Channels of the first stage or level; each further one has twice as many (resnet*, unet)");
}

KeySpec depth_key() {
  return keys::integer(
      "model.depth", "0",
      "Number of levels below the first (unet), or of blocks (vit). 0 = that of the model, or 4 (unet) and 12 (vit)", 0,
      48);
}

KeySpec head_key() {
  return keys::choice("model.head", "auto",
                      "Outputs: scores of classes, or real numbers. auto = those that the data need (unet, mlp)",
                      {"auto", "classes", "real"});
}

KeySpecs mlp_keys() {
  return {hidden_key(),
          dropout_key(),
          keys::choice("model.activation", "relu", "Activation of the hidden layers (mlp)",
                       {"relu", "gelu", "silu", "tanh"}),
          norm_key(),
          keys::boolean("model.residual", "false",
                        "Add the input of a hidden layer to its output where both have the same width (mlp)"),
          head_key(),
          keys::boolean("model.standardize", "false",
                        "Subtract the mean of each input over the training data and divide by its standard deviation; "
                        "regressions compute their outputs in the unit of the targets. The statistics are part of the "
                        "model and of its checkpoints (mlp)")};
}

KeySpecs unet_keys() {
  return {width_key(), depth_key(),
          keys::choice("model.up", "transposed",
                       "How levels are enlarged: by transposed convolutions, or by bilinear interpolation (unet)",
                       {"transposed", "bilinear"}),
          norm_key(), head_key()};
}

KeySpecs resnet_keys() {
  return {width_key(),
          keys::choice("model.stem", "auto",
                       "First layers of a ResNet: a 3x3 convolution (small), or a 7x7 convolution and pooling, which "
                       "divide height and width by four, as for ImageNet (imagenet). auto = small for resnet18 and "
                       "imagenet for all others",
                       {"auto", "small", "imagenet"}),
          keys::integer("model.groups", "0",
                        "Groups of the 3x3 convolutions (resnet50 and deeper). 0 = that of the model", 0, kMaxSize),
          keys::integer("model.width_per_group", "0",
                        "Channels of each group in the first stage, for a model.width of 64 (resnet50 and deeper). 0 = "
                        "that of the model",
                        0, kMaxSize),
          keys::boolean("model.zero_init_residual", "false",
                        "Start each residual branch of a ResNet with the output zero")};
}

KeySpecs unet_resnet_keys() {
  KeySpecs keys = resnet_keys();
  keys.push_back(head_key());
  keys.push_back(keys::integers("model.decoder_widths", "256,128,64,32,16",
                                "Output channels of the five levels of the decoder, from the smallest images to the "
                                "largest (unet_resnet*)",
                                1, kMaxSize));
  return keys;
}

KeySpecs vit_keys() {
  return {
      keys::integer("model.patch_size", "0", "Side of the patches in pixels (vit). 0 = that of the model, or 16", 0,
                    kMaxSize),
      keys::integer("model.embed_dim", "0", "Features of a token (vit). 0 = that of the model, or 192", 0, kMaxSize),
      depth_key(),
      keys::integer("model.num_heads", "0", "Number of attention heads (vit). 0 = that of the model, or 3", 0,
                    kMaxSize),
      keys::real_above("model.mlp_ratio", 0, 1024, "4", "Hidden features for each feature of a token (vit)"),
      keys::boolean("model.class_token", "true", "Prepend a learned token (vit)"),
      keys::choice("model.global_pool", "auto",
                   "Input of the head: the class token (token), or the mean over the patches (avg). auto = token if "
                   "there is one (vit)",
                   {"auto", "token", "avg"}),
      keys::integer("model.reg_tokens", "0", "Number of learned tokens after the class token (vit)", 0, kMaxSize),
      keys::choice("model.no_embed_class", "auto",
                   "Add the positions to the patches only, instead of to all tokens. auto = that of the model (vit)",
                   {"auto", "true", "false"}),
      keys::real("model.init_values", "-1",
                 "Initial factor of each residual branch, which is learned. 0 = there is no factor, -1 = that of "
                 "the model (vit)",
                 -1, 1024),
      drop_path_key(),
      keys::boolean("model.qkv_bias", "true", "Use biases in the projections to queries, keys and values (vit)"),
      keys::boolean("model.qk_norm", "false", "Normalize queries and keys of each head (vit)"),
      keys::boolean("model.pre_norm", "false", "Normalize the tokens before the first block (vit)")};
}

using PresetMake = std::shared_ptr<Model> (*)(const std::string& preset, const Section& model, const Task& task);

/// The function of a row for one preset. The row works under any name.
auto preset(const std::string& name, PresetMake make) {
  return [name, make](const Section& model, const Task& task) { return make(name, model, task); };
}

/// The rows, followed by one for each name of a ResNet and of a ViT.
std::vector<ModelRow> with_presets(std::vector<ModelRow> rows) {
  for (const char* name : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
                           "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"}) {
    rows.push_back({name, "Residual network, named as in torchvision", resnet_keys(), preset(name, make_resnet)});
  }
  for (const char* name : {"unet_resnet18", "unet_resnet34", "unet_resnet50"}) {
    rows.push_back({name, "U-Net with a ResNet as its encoder, named as in segmentation_models_pytorch",
                    unet_resnet_keys(), preset(name, make_unet_resnet)});
  }
  for (const char* name : {"mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"}) {
    rows.push_back({name, "Small network for mobile devices, named as in torchvision", mobile_keys(),
                    preset(name, make_mobilenet)});
  }
  rows.push_back(
      {"efficientnet_b0", "EfficientNet-B0, named as in torchvision", efficientnet_keys(), make_efficientnet});
  for (const std::string& name : vit_names()) {
    rows.push_back({name, "Vision transformer, named as in timm and torchvision", vit_keys(), preset(name, make_vit)});
  }
  return rows;
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
  static const std::vector<ModelRow> rows = with_presets({
      {"mlp", "Linear layers with activations between them, for tables and small images", mlp_keys(), make_mlp},
      {"cnn",
       "3x3 convolutions with ReLU and pooling, followed by an mlp",
       {keys::integers("model.channels", "16,32", "Output channels of the convolutions (cnn)", 1, 1 << 16),
        hidden_key(), dropout_key()},
       make_cnn},
      {"gpt",
       "Decoder-only transformer with learned positions and tied embeddings",
       {size_key("model.layers", "4", "Number of transformer blocks (gpt)"),
        size_key("model.heads", "4", "Number of attention heads (gpt)"),
        size_key("model.features", "128", "Embedding dimension (gpt)"),
        keys::boolean("model.bias", "false", "Use biases in linear and norm layers (gpt)"), dropout_key()},
       make_gpt},
      {"convnext", "ConvNeXt of any size", convnext_keys(), preset("convnext", make_convnext)},
      {"convnext_tiny", "ConvNeXt with 28.6 million parameters", convnext_keys(),
       preset("convnext_tiny", make_convnext)},
      {"convnext_small", "ConvNeXt with 50.2 million parameters", convnext_keys(),
       preset("convnext_small", make_convnext)},
      {"convnext_base", "ConvNeXt with 88.6 million parameters", convnext_keys(),
       preset("convnext_base", make_convnext)},
      {"convnext_large", "ConvNeXt with 197.8 million parameters", convnext_keys(),
       preset("convnext_large", make_convnext)},
      {"unet", "U-Net for masks of classes and for fields of real numbers", unet_keys(), make_unet},
      {"torchscript",
       "Module that torch.jit.script saved in Python. The archive contains code, which is executed",
       {keys::text("model.file", "", "Archive of the module, such as net.pt (torchscript)"),
        keys::boolean(
            "model.optimize", "false",
            "Let LibTorch specialize and fuse the code of the archive (torchscript). The first steps are then "
            "computed by other code than later ones, so a resumed run can differ in the last bits")},
       make_torchscript},
  });
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
  built->set_task_kind(task.kind);
  if (settings.preprocess == "image") built->set_input_change(image_preprocessor(model));
  built->name_blocks();
  return built;
}

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
       keys::reals("model.image_mean", "", "image: mean, as one value or one per channel. If empty, 0 is used"),
       keys::reals(
           "model.image_std", "",
           "image: standard deviation, as one value or one per channel. Must be set together with model.image_mean"),
       keys::integer("model.image_divisor", "1", "image: pad height and width to multiples of this number", 1, 1 << 16),
       keys::real("model.image_padding", "0", "image: padding value, applied after normalization"),
       keys::boolean("model.image_reversed", "false",
                     "image: reverse the order of the channels (BGR to RGB, or RGB to BGR)")});
}

ModelSettings ModelSettings::from(const Section& model) {
  return {.name = model.text("name"),
          .recompute = words_in(model.text("recompute")),
          .preprocess = model.text("preprocess")};
}

KeySpecs model_keys(const std::vector<ModelRow>& rows) { return keys_of_rows(ModelSettings::keys(), rows); }

batch::Batch Model::preprocess(batch::Batch batch, bool) const {
  if (input_change_) batch.set_input(input_change_(batch.at(batch.input_key())));
  return batch;
}

batch::Outputs Model::forward_batch(const batch::Batch& batch) { return forward(batch.input()); }

LossMap Model::losses(const at::Tensor& output, const at::Tensor& target) const {
  const TaskRow& row = row_of(task_kind_);
  if (row.losses != nullptr) {
    LossMap losses = row.losses(output, target);
    for (auto& [name, term] : losses) term.is_of_task = true;
    return losses;
  }
  throw ConfigError("the task is " + row.name + ", so the model must define its losses: override losses_of");
}

LossMap Model::losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const {
  return losses(outputs.main(), batch.target());
}

std::vector<std::pair<std::string, double>> Model::counts(const batch::Batch&) const { return {}; }

Predictions Model::predict(const at::Tensor& output) const {
  const TaskRow& row = row_of(task_kind_);
  if (row.predict != nullptr) return row.predict(output);
  throw ConfigError("the task is " + row.name + ", so the model must define its predictions: override predictions_of");
}

Predictions Model::predictions_of(const batch::Outputs& outputs, const batch::Batch&) const {
  return predict(outputs.main());
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), target.view({-1}));
}

}  // namespace lockstep::models
