// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>

#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

constexpr std::int64_t kFeaturesPerHead = 64;                // features of all published models
constexpr std::int64_t kMaxPositions = 1 << 24;              // maximum in a file
constexpr const char* kNoScale = "0";                        // value of init_values without LayerScale
constexpr const char* kAnyTimmVit = "vit_tiny_patch16_224";  // model of timm that gets all its sizes as arguments

struct VitRow {
  const char* name;
  int patch_size, embed_dim, depth, num_heads;
  const char* init_values = kNoScale;
  const char* no_embed_class = "false";
};

constexpr VitRow kVits[] = {{"vit", 16, 192, 12, 3},
                            {"vit_tiny_patch16_224", 16, 192, 12, 3},
                            {"vit_tiny_patch16_384", 16, 192, 12, 3},
                            {"vit_small_patch16_224", 16, 384, 12, 6},
                            {"vit_small_patch16_384", 16, 384, 12, 6},
                            {"vit_small_patch32_224", 32, 384, 12, 6},
                            {"vit_base_patch16_224", 16, 768, 12, 12},
                            {"vit_base_patch16_384", 16, 768, 12, 12},
                            {"vit_base_patch32_224", 32, 768, 12, 12},
                            {"vit_large_patch16_224", 16, 1024, 24, 16},
                            {"vit_large_patch16_384", 16, 1024, 24, 16},
                            {"deit3_small_patch16_224", 16, 384, 12, 6, "1e-6", "true"},
                            {"deit3_base_patch16_224", 16, 768, 12, 12, "1e-6", "true"},
                            {"deit3_large_patch16_224", 16, 1024, 24, 16, "1e-6", "true"},
                            {"vit_small_patch14_dinov2", 14, 384, 12, 6, "1e-5"},
                            {"vit_base_patch14_dinov2", 14, 768, 12, 12, "1e-5"},
                            {"vit_large_patch14_dinov2", 14, 1024, 24, 16, "1e-5"},
                            {"vit_b_16", 16, 768, 12, 12},
                            {"vit_b_32", 32, 768, 12, 12},
                            {"vit_l_16", 16, 1024, 24, 16},
                            {"vit_l_32", 32, 1024, 24, 16}};

std::vector<ModelPreset> vit_presets() {
  std::vector<ModelPreset> presets;
  for (const VitRow& row : kVits) {
    presets.push_back({.name = row.name,
                       .sizes = {{"patch_size", std::to_string(row.patch_size)},
                                 {"embed_dim", std::to_string(row.embed_dim)},
                                 {"depth", std::to_string(row.depth)},
                                 {"num_heads", std::to_string(row.num_heads)},
                                 {"init_values", row.init_values},
                                 {"no_embed_class", row.no_embed_class}}});
  }
  return presets;
}

/// A model of torchvision, and the one of timm that has its sizes.
struct TorchvisionVit {
  std::string_view name;
  std::string_view timm;
};
constexpr TorchvisionVit kTorchvisionVits[] = {{"vit_b_16", "vit_base_patch16_224"},
                                               {"vit_b_32", "vit_base_patch32_224"},
                                               {"vit_l_16", "vit_large_patch16_224"},
                                               {"vit_l_32", "vit_large_patch32_224"}};

KeySpecs vit_keys() {
  return {
      keys::integer("model.patch_size", "0", "Side of the patches in pixels (vit). 0 = that of the model, or 16", 0,
                    kMaxSize),
      embed_dim_key(),
      depth_key(),
      num_heads_key(),
      mlp_ratio_key("4"),
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

/// The factor from which libraries compute the hidden features by truncation.
std::string mlp_ratio(std::int64_t hidden, std::int64_t features) {
  if (hidden % features == 0) return std::to_string(hidden / features);
  double ratio = static_cast<double>(hidden) / static_cast<double>(features);
  if (static_cast<std::int64_t>(static_cast<double>(features) * ratio) < hidden) {
    ratio = std::nextafter(ratio, 2 * ratio);
  }
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), ratio).ptr};
}

std::int64_t side_of(std::int64_t cells) {
  return std::llround(std::sqrt(static_cast<double>(std::max<std::int64_t>(cells, 0))));
}

bool is_square(std::int64_t cells) { return cells > 0 && side_of(cells) * side_of(cells) == cells; }

std::int64_t register_tokens(const TensorShapes& shapes) {
  const auto* const registers = find_shape(shapes, "reg_token", 3);
  return registers != nullptr ? (*registers)[1] : 0;
}

std::int64_t prefix_tokens(const TensorShapes& shapes) {
  return (shapes.contains("cls_token") ? 1 : 0) + register_tokens(shapes);
}

std::optional<ModelKeys> vit_sizes(const TensorShapes& shapes) {
  const auto* const patches = find_shape(shapes, "patch_embed.proj.weight", 4);
  const auto* const hidden = find_shape(shapes, "blocks.0.mlp.fc1.weight", 2);
  if (patches == nullptr || hidden == nullptr || (*patches)[0] <= 0 || (*patches)[2] != (*patches)[3]) {
    return std::nullopt;
  }
  const std::int64_t features = (*patches)[0];
  ModelKeys sizes;
  const auto add = [&sizes](const char* key, const std::string& value) { sizes.emplace_back(key, value); };
  add("patch_size", std::to_string((*patches)[2]));
  add("embed_dim", std::to_string(features));
  add("depth", std::to_string(count_of(shapes, "blocks.", ".norm1.weight")));
  add("num_heads", std::to_string(std::max<std::int64_t>(1, features / kFeaturesPerHead)));
  if ((*hidden)[0] != 4 * features) add("mlp_ratio", mlp_ratio((*hidden)[0], features));
  if (!shapes.contains("cls_token")) add("class_token", "false");
  if (shapes.contains("fc_norm.weight")) add("global_pool", "avg");
  if (register_tokens(shapes) > 0) add("reg_tokens", std::to_string(register_tokens(shapes)));
  add("init_values", shapes.contains("blocks.0.ls1.gamma") ? "1e-5" : kNoScale);
  if (!shapes.contains("blocks.0.attn.qkv.bias")) add("qkv_bias", "false");
  if (shapes.contains("blocks.0.attn.q_norm.weight")) add("qk_norm", "true");
  if (shapes.contains("norm_pre.weight")) add("pre_norm", "true");
  // The grid is square: the number of positions states whether the other tokens have one.
  if (const auto* const positions = find_shape(shapes, "pos_embed", 3)) {
    const std::int64_t count = (*positions)[1];
    if (count > kMaxPositions) return std::nullopt;
    const std::int64_t others = prefix_tokens(shapes);
    add("no_embed_class", flag_text(others > 0 && !is_square(count - others) && is_square(count)));
  }
  return sizes;
}

/// Adds what the shapes do not state: the configuration of the run, or the sizes of its model.
void add_known_sizes(const FamilyRow& family, const TrainedModel& model, ModelKeys& sizes) {
  const auto preset = std::ranges::find(family.presets, model.name, &ModelPreset::name);
  for (const char* const key : {"num_heads", "no_embed_class"}) {
    const auto set = model.keys.find(key);
    const bool is_left = set == model.keys.end() || set->second == "0" || set->second == "auto";
    const std::string value = is_left ? *value_of(preset->sizes, key) : set->second;
    std::erase_if(sizes, [key](const auto& size) { return size.first == key; });
    sizes.emplace_back(key, value);
  }
}

/// Height and width of the images, from the positions of a square grid if they are not known.
void find_image_size(const TrainedModel& model, const ModelKeys& sizes, std::int64_t prefix, PublicModel& result) {
  const std::int64_t tokens = shape_of(model, result.library, "pos_embed", 3)[1];
  const std::int64_t cells = tokens - prefix;
  const std::int64_t patch_size = std::stoll(*value_of(sizes, "patch_size"));
  if (result.height <= 0 || result.width <= 0) result.height = result.width = side_of(cells) * patch_size;
  const std::int64_t grid = (result.height / patch_size) * (result.width / patch_size);
  if (cells != grid) {
    refuse(model, result.library, std::to_string(tokens) + " positions for a grid of " + std::to_string(grid));
  }
}

/// The sizes of a trained model.
ModelKeys trained_sizes(const FamilyRow& family, const TrainedModel& model, const std::string& library) {
  shape_of(model, library, "patch_embed.proj.weight", 4);
  shape_of(model, library, "blocks.0.mlp.fc1.weight", 2);
  shape_of(model, library, "pos_embed", 3);
  std::optional<ModelKeys> sizes = family.sizes_of(model.shapes);
  if (!sizes) refuse(model, library, "patches or positions of these shapes");
  add_known_sizes(family, model, *sizes);
  return *sizes;
}

void complete_timm_vit(const FamilyRow& family, const TrainedModel& model, PublicModel& result) {
  const ModelKeys sizes = trained_sizes(family, model, result.library);
  const auto* const torchvision = std::ranges::find(kTorchvisionVits, model.name, &TorchvisionVit::name);
  if (torchvision != std::end(kTorchvisionVits)) result.function = torchvision->timm;
  if (model.name == family.name) result.function = kAnyTimmVit;
  result.has_fixed_size = true;
  const bool no_embed_class = value_of(sizes, "no_embed_class") == "true";
  find_image_size(model, sizes, no_embed_class ? 0 : prefix_tokens(model.shapes), result);
  result.arguments = arguments_of(family, result.library, sizes);
  result.arguments.emplace(result.arguments.begin(), "img_size",
                           "[" + std::to_string(result.height) + ", " + std::to_string(result.width) + "]");
}

void complete_torchvision_vit(const FamilyRow& family, const TrainedModel& model, PublicModel& result) {
  const ModelKeys sizes = trained_sizes(family, model, result.library);
  for (const auto& [name, words] :
       {std::pair("cls_token", "model.class_token = false"),
        std::pair("blocks.0.attn.qkv.bias", "model.qkv_bias = false"), std::pair("head.weight", "no head")}) {
    if (!model.shapes.contains(name)) refuse(model, result.library, words);
  }
  result.has_fixed_size = true;
  find_image_size(model, sizes, 1, result);
  if (result.height != result.width) refuse(model, result.library, "images that are not square");
  const std::string side = std::to_string(result.height);
  for (const TorchvisionVit& row : kTorchvisionVits) {
    const auto preset = std::ranges::find(family.presets, row.name, &ModelPreset::name);
    const bool is_it =
        !value_of(sizes, "mlp_ratio") &&
        std::ranges::all_of(std::array{"patch_size", "embed_dim", "depth", "num_heads"},
                            [&](const char* key) { return value_of(sizes, key) == value_of(preset->sizes, key); });
    if (!is_it) continue;
    result.function = row.name;
    result.arguments = {{"image_size", side}};
    return;
  }
  result.function = "VisionTransformer";
  result.arguments = arguments_of(family, result.library, sizes);
  result.arguments.emplace(result.arguments.begin(), "image_size", side);
  result.arguments.emplace_back("mlp_dim", std::to_string(model.shapes.at("blocks.0.mlp.fc1.weight")[0]));
}

LibraryRow torchvision_vit() {
  return {.name = "torchvision",
          .names = {{"cls_token", "class_token"},
                    {"pos_embed", "encoder.pos_embedding"},
                    {"patch_embed.proj.*", "conv_proj.*"},
                    {"blocks.{i}.norm1.*", "encoder.layers.encoder_layer_{i}.ln_1.*"},
                    {"blocks.{i}.attn.qkv.weight", "encoder.layers.encoder_layer_{i}.self_attention.in_proj_weight"},
                    {"blocks.{i}.attn.qkv.bias", "encoder.layers.encoder_layer_{i}.self_attention.in_proj_bias"},
                    {"blocks.{i}.attn.proj.*", "encoder.layers.encoder_layer_{i}.self_attention.out_proj.*"},
                    {"blocks.{i}.norm2.*", "encoder.layers.encoder_layer_{i}.ln_2.*"},
                    {"blocks.{i}.mlp.fc1.*", "encoder.layers.encoder_layer_{i}.mlp.0.*"},
                    {"blocks.{i}.mlp.fc2.*", "encoder.layers.encoder_layer_{i}.mlp.3.*"},
                    // Names in version 1 of the blocks.
                    {"blocks.{i}.mlp.fc1.*", "encoder.layers.encoder_layer_{i}.mlp.linear_1.*"},
                    {"blocks.{i}.mlp.fc2.*", "encoder.layers.encoder_layer_{i}.mlp.linear_2.*"},
                    {"norm.*", "encoder.ln.*"},
                    {"head.*", "heads.head.*"}},
          .late = "pos_embed",
          .before_late = "patch_embed.",
          .arguments = {{.name = "patch_size", .key = "patch_size"},
                        {.name = "num_layers", .key = "depth"},
                        {.name = "num_heads", .key = "num_heads"},
                        {.name = "hidden_dim", .key = "embed_dim"}},
          .complete = complete_torchvision_vit};
}

LibraryRow timm_vit() {
  return {.name = "timm",
          .arguments = {{.name = "patch_size", .key = "patch_size"},
                        {.name = "embed_dim", .key = "embed_dim"},
                        {.name = "depth", .key = "depth"},
                        {.name = "num_heads", .key = "num_heads"},
                        {.name = "mlp_ratio", .key = "mlp_ratio", .otherwise = "4"},
                        {.name = "class_token", .key = "class_token", .otherwise = "true"},
                        {.name = "reg_tokens", .key = "reg_tokens", .otherwise = "0"},
                        {.name = "no_embed_class", .key = "no_embed_class"},
                        {.name = "global_pool", .key = "global_pool", .otherwise = "\"token\""},
                        {.name = "qkv_bias", .key = "qkv_bias", .otherwise = "true"},
                        {.name = "qk_norm", .key = "qk_norm", .otherwise = "false"},
                        {.name = "pre_norm", .key = "pre_norm", .otherwise = "false"},
                        // The value is the initial one of parameters that are loaded; that there is one creates them.
                        {.name = "init_values", .key = "init_values", .unwritten = kNoScale},
                        {.name = "drop_path_rate", .key = "drop_path"},
                        {.name = "fc_norm", .unwritten = "null"},
                        {.name = "dynamic_img_size", .unwritten = kOff},
                        {.name = "dynamic_img_pad", .unwritten = kOff},
                        {.name = "weight_init"},
                        {.name = "fix_init"}},
          .complete = complete_timm_vit};
}

}  // namespace

FamilyRow vit_family() {
  return {.name = "vit",
          .help = "Vision transformer, named as in timm and torchvision",
          .keys = vit_keys(),
          .sizes = {{"drop_path", "0"}},
          .presets = vit_presets(),
          .head = {"head"},
          .stem = "patch_embed.proj",
          .positions = "pos_embed",
          // Source: no_weight_decay of timm, vision_transformer.py; register tokens are treated as the class token.
          .undecayed = {"cls_token", "reg_token", "pos_embed"},
          .sizes_of = vit_sizes,
          .libraries = {torchvision_vit(), timm_vit()}};
}

}  // namespace lockstep::families
