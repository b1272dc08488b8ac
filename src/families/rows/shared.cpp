// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text.hpp"
#include "families/rows/rows.hpp"

namespace lockstep::families {

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

KeySpec norm_key() {
  return keys::choice("model.norm", "auto",
                      "Normalization between the layers: batch, group (of 8 groups of channels, for small batches), "
                      "layer, one_group (of all channels) or instance (of each channel, without parameters), or none. "
                      "auto = batch (unet) or none (mlp, fno)",
                      {"auto", "batch", "group", "layer", "one_group", "instance", "none"});
}

KeySpec width_key(const std::string& default_value) {
  return size_key("model.width", default_value,
                  "Channels of the first stage or level; each further one has twice as many (resnet*, unet*). Channels "
                  "of all blocks (fno)");
}

KeySpec mlp_ratio_key(const std::string& default_value) {
  return keys::real_above("model.mlp_ratio", 0, 1024, default_value,
                          "Hidden features of an MLP for each feature of a token (vit) or channel of a block (fno)");
}

KeySpec padding_key() {
  return keys::text(
      "model.padding", "zero",
      "How convolutions continue a field beyond its ends: zero, circular, replicate or reflect, as a list "
      "by axis of space, or one word for all: zero,circular for latitude and longitude (unet, "
      "unet_classic)");
}

namespace {

/// The key that replaces one of gpt alone.
KeySpec replacing_gpt_key(const KeySpec& key, const std::string& former) {
  return keys::replacing(key, {.key = former,
                               .translate = [](const std::string& value, const std::string&) { return value; },
                               .only_with = "model.name=gpt"});
}

}  // namespace

KeySpec depth_key(const std::string& default_value) {
  return replacing_gpt_key(
      keys::integer("model.depth", default_value,
                    "Number of blocks (gpt, vit, fno), or of levels below the first (unet). 0 = that of "
                    "the model, or 4 (gpt, unet, fno) and 12 (vit)",
                    0, kMaxSize),
      "model.layers");
}

KeySpec num_heads_key(const std::string& default_value) {
  return replacing_gpt_key(
      keys::integer("model.num_heads", default_value,
                    "Number of attention heads (gpt, vit). 0 = that of the model, or 4 (gpt) and 3 "
                    "(vit)",
                    0, kMaxSize),
      "model.heads");
}

KeySpec embed_dim_key(const std::string& default_value) {
  return replacing_gpt_key(keys::integer("model.embed_dim", default_value,
                                         "Features of a token (gpt, vit). 0 = that of the model, or 128 (gpt) and 192 "
                                         "(vit)",
                                         0, kMaxSize),
                           "model.features");
}

KeySpec head_key() {
  return keys::choice("model.head", "auto",
                      "Outputs: scores of classes, or real numbers. auto = those that the data need (unet, mlp, "
                      "fno)",
                      {"auto", "classes", "real"});
}

KeySpecs mobile_keys() {
  return {keys::real_above("model.width_mult", 0, 64, "1",
                           "Factor on the channels of all convolutions, which stay multiples of 8 (mobilenet_*, "
                           "efficientnet_b0)"),
          keys::real("model.head_dropout", "0.2",
                     "Dropout probability before the last layer (mobilenet_*, efficientnet_b0)", 0, 0.95)};
}

const std::vector<std::int64_t>* find_shape(const TensorShapes& shapes, const std::string& name, std::size_t dims) {
  const auto found = shapes.find(name);
  return found != shapes.end() && found->second.size() == dims ? &found->second : nullptr;
}

std::int64_t count_of(const TensorShapes& shapes, const std::string& before, const std::string& after,
                      std::int64_t first) {
  std::int64_t i = first;
  while (shapes.contains(before + std::to_string(i) + after)) ++i;
  return i - first;
}

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> words;
  for (const std::int64_t number : numbers) words.push_back(std::to_string(number));
  return joined(words, ",");
}

std::string flag_text(bool is_set) { return is_set ? "true" : "false"; }

}  // namespace lockstep::families
