// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/model_description.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <string_view>

#include "checkpoints/foreign/source.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

/// The families of timm with models here, by the beginnings of their names.
struct TimmFamily {
  std::string_view prefix;
  std::string_view family;
};

constexpr TimmFamily kTimmFamilies[] = {
    {"resnet", "resnet"}, {"resnext", "resnet"}, {"wide_resnet", "resnet"},
    {"vit_", "vit"},      {"deit3_", "vit"},     {"convnext", "convnext"},
};

/// An argument of a model of timm.
struct TimmArgument {
  std::string_view family;  ///< empty = of all
  std::string_view name;
  std::string_view key;      ///< key of section `model` with the same value; empty = there is none
  std::string_view allowed;  ///< values that change nothing here, as JSON, if there is no key; empty = any value
};

constexpr std::string_view kOff = "0 0.0 false null";

constexpr TimmArgument kTimmArguments[] = {
    // Settings that the file of the weights, the task or the initial values decide, and what only affects training
    // there.
    {"", "num_classes", "", ""},
    {"", "in_chans", "", ""},
    {"", "img_size", "", ""},
    {"", "pretrained", "", ""},
    {"", "drop_rate", "", kOff},
    {"", "attn_drop_rate", "", kOff},
    {"", "proj_drop_rate", "", kOff},
    {"", "pos_drop_rate", "", kOff},
    {"", "patch_drop_rate", "", kOff},
    {"resnet", "cardinality", "groups", ""},
    {"resnet", "base_width", "width_per_group", ""},
    {"resnet", "zero_init_last", "zero_init_residual", ""},
    {"resnet", "global_pool", "", "\"avg\""},
    {"resnet", "drop_path_rate", "", kOff},
    {"vit", "patch_size", "patch_size", ""},
    {"vit", "embed_dim", "embed_dim", ""},
    {"vit", "depth", "depth", ""},
    {"vit", "num_heads", "num_heads", ""},
    {"vit", "mlp_ratio", "mlp_ratio", ""},
    {"vit", "qkv_bias", "qkv_bias", ""},
    {"vit", "qk_norm", "qk_norm", ""},
    {"vit", "init_values", "init_values", ""},
    {"vit", "class_token", "class_token", ""},
    {"vit", "no_embed_class", "no_embed_class", ""},
    {"vit", "reg_tokens", "reg_tokens", ""},
    {"vit", "pre_norm", "pre_norm", ""},
    {"vit", "global_pool", "global_pool", ""},
    {"vit", "drop_path_rate", "drop_path", ""},
    {"vit", "fc_norm", "", "null"},
    {"vit", "dynamic_img_size", "", kOff},
    {"vit", "dynamic_img_pad", "", kOff},
    {"vit", "weight_init", "", ""},
    {"vit", "fix_init", "", ""},
    {"convnext", "depths", "depths", ""},
    {"convnext", "dims", "widths", ""},
    {"convnext", "drop_path_rate", "drop_path", ""},
    {"convnext", "patch_size", "", "4"},
    {"convnext", "kernel_sizes", "", "7"},
    {"convnext", "conv_mlp", "", kOff},
    {"convnext", "use_grn", "", kOff},
    {"convnext", "global_pool", "", "\"avg\""},
    {"convnext", "head_init_scale", "", ""},
};

std::string_view family_of(const std::string& architecture) {
  for (const TimmFamily& row : kTimmFamilies) {
    if (architecture.starts_with(row.prefix)) return row.family;
  }
  return "";
}

const TimmArgument* find_argument(std::string_view family, const std::string& name) {
  for (const TimmArgument& row : kTimmArguments) {
    if (row.name == name && (row.family.empty() || row.family == family)) return &row;
  }
  return nullptr;
}

/// A JSON value as the text of a key: [3,3,9,3] is 3,3,9,3, and null is 0.
std::string key_text(const std::string& json) {
  if (json == "null") return "0";
  const bool is_wrapped = json.size() > 1 && (json.front() == '[' || json.front() == '"');
  return is_wrapped ? json.substr(1, json.size() - 2) : json;
}

bool is_allowed(std::string_view allowed, const std::string& json) {
  if (allowed.empty()) return true;
  const std::vector<std::string> words = words_in(std::string(allowed), ' ');
  return std::find(words.begin(), words.end(), json) != words.end();
}

std::vector<std::string> known_architectures(const std::vector<std::string>& models) {
  std::vector<std::string> known;
  std::copy_if(models.begin(), models.end(), std::back_inserter(known),
               [](const std::string& name) { return !family_of(name).empty() && name != "convnext"; });
  return known;
}

// --- files ---

using Shape = std::vector<std::int64_t>;

const Shape* find_shape(const TensorShapes& shapes, const std::string& name, std::size_t dims) {
  const auto found = shapes.find(name);
  return found != shapes.end() && found->second.size() == dims ? &found->second : nullptr;
}

/// The number of `i` from 0 on (or `first`) for which the tensor is there.
std::int64_t count_of(const TensorShapes& shapes, const std::string& before, const std::string& after,
                      std::int64_t first = 0) {
  std::int64_t i = first;
  while (shapes.contains(before + std::to_string(i) + after)) ++i;
  return i - first;
}

std::int64_t head_size(const TensorShapes& shapes, const std::string& name, std::size_t dims) {
  const Shape* const shape = find_shape(shapes, name, dims);
  return shape != nullptr ? shape->front() : 0;
}

struct ResNetSizes {
  std::string_view name;
  std::int64_t units[4];
  bool has_bottlenecks;
};

constexpr ResNetSizes kResNetSizes[] = {
    {"resnet18", {2, 2, 2, 2}, false},  {"resnet34", {3, 4, 6, 3}, false},  {"resnet50", {3, 4, 6, 3}, true},
    {"resnet101", {3, 4, 23, 3}, true}, {"resnet152", {3, 8, 36, 3}, true},
};

std::optional<ModelDescription> as_resnet(const TensorShapes& shapes) {
  const Shape* const stem = find_shape(shapes, "conv1.weight", 4);
  const Shape* const inner = find_shape(shapes, "layer1.0.conv2.weight", 4);
  if (stem == nullptr || inner == nullptr || (*stem)[0] <= 0 || (*inner)[1] <= 0) return std::nullopt;
  if ((*stem)[2] != 7 && (*stem)[2] != 3) return std::nullopt;
  const bool has_bottlenecks = shapes.contains("layer1.0.conv3.weight");
  for (const ResNetSizes& row : kResNetSizes) {
    bool fits = row.has_bottlenecks == has_bottlenecks;
    for (int s = 0; s < 4; ++s) {
      fits = fits && count_of(shapes, "layer" + std::to_string(s + 1) + ".", ".conv1.weight") == row.units[s];
    }
    if (!fits) continue;
    const std::int64_t width = (*stem)[0];
    ModelDescription model{.name = std::string(row.name), .classes = head_size(shapes, "fc.weight", 2)};
    model.keys.emplace_back("stem", (*stem)[2] == 7 ? "imagenet" : "small");
    if (width != 64) model.keys.emplace_back("width", std::to_string(width));
    if (!has_bottlenecks) return model;
    const std::int64_t groups = (*inner)[0] / (*inner)[1];
    if (groups <= 0) return std::nullopt;
    const std::int64_t per_group = (*inner)[0] / groups * 64 / width;
    if (groups != 1) model.keys.emplace_back("groups", std::to_string(groups));
    if (per_group != 64) model.keys.emplace_back("width_per_group", std::to_string(per_group));
    return model;
  }
  return std::nullopt;
}

std::optional<ModelDescription> as_vit(const TensorShapes& shapes) {
  constexpr std::int64_t kFeaturesPerHead = 64;
  constexpr std::int64_t kMaxPositions = 1 << 24;
  const Shape* const patches = find_shape(shapes, "patch_embed.proj.weight", 4);
  const Shape* const hidden = find_shape(shapes, "blocks.0.mlp.fc1.weight", 2);
  if (patches == nullptr || hidden == nullptr || (*patches)[0] <= 0 || (*patches)[2] != (*patches)[3]) {
    return std::nullopt;
  }
  const std::int64_t features = (*patches)[0];
  ModelDescription model{.name = "vit", .classes = head_size(shapes, "head.weight", 2)};
  const auto add = [&model](const char* key, const std::string& value) { model.keys.emplace_back(key, value); };
  add("patch_size", std::to_string((*patches)[2]));
  add("embed_dim", std::to_string(features));
  add("depth", std::to_string(count_of(shapes, "blocks.", ".norm1.weight")));
  add("num_heads", std::to_string(std::max<std::int64_t>(1, features / kFeaturesPerHead)));
  if ((*hidden)[0] != 4 * features) {
    add("mlp_ratio", number_text(static_cast<double>((*hidden)[0]) / static_cast<double>(features), 17));
  }
  const bool has_class_token = shapes.contains("cls_token");
  if (!has_class_token) add("class_token", "false");
  if (shapes.contains("fc_norm.weight")) add("global_pool", "avg");
  const Shape* const registers = find_shape(shapes, "reg_token", 3);
  const std::int64_t reg_tokens = registers != nullptr ? (*registers)[1] : 0;
  if (reg_tokens > 0) add("reg_tokens", std::to_string(reg_tokens));
  add("init_values", shapes.contains("blocks.0.ls1.gamma") ? "1e-5" : "0");
  if (!shapes.contains("blocks.0.attn.qkv.bias")) add("qkv_bias", "false");
  if (shapes.contains("blocks.0.attn.q_norm.weight")) add("qk_norm", "true");
  if (shapes.contains("norm_pre.weight")) add("pre_norm", "true");
  // The grid is square: the number of positions states whether the other tokens have one.
  if (const Shape* const positions = find_shape(shapes, "pos_embed", 3)) {
    if ((*positions)[1] > kMaxPositions) return std::nullopt;
    const auto is_square = [](std::int64_t count) {
      std::int64_t side = 0;
      while (side * side < count) ++side;
      return count > 0 && side * side == count;
    };
    const std::int64_t others = (has_class_token ? 1 : 0) + reg_tokens;
    const bool are_patches = others > 0 && !is_square((*positions)[1] - others) && is_square((*positions)[1]);
    add("no_embed_class", are_patches ? "true" : "false");
  }
  return model;
}

std::optional<ModelDescription> as_convnext(const TensorShapes& shapes) {
  if (find_shape(shapes, "stem.0.weight", 4) == nullptr) return std::nullopt;
  ModelDescription model{.name = "convnext", .classes = head_size(shapes, "head.fc.weight", 2)};
  std::vector<std::string> depths;
  std::vector<std::string> widths;
  while (const Shape* const scale =
             find_shape(shapes, "stages." + std::to_string(depths.size()) + ".blocks.0.gamma", 1)) {
    const std::string blocks = "stages." + std::to_string(depths.size()) + ".blocks.";
    depths.push_back(std::to_string(count_of(shapes, blocks, ".gamma")));
    widths.push_back(std::to_string(scale->front()));
  }
  if (depths.empty()) return std::nullopt;
  model.keys = {{"depths", joined(depths, ",")}, {"widths", joined(widths, ",")}};
  return model;
}

std::optional<ModelDescription> as_unet(const TensorShapes& shapes) {
  const Shape* const first = find_shape(shapes, "inc.double_conv.0.weight", 4);
  if (first == nullptr) return std::nullopt;
  ModelDescription model{.name = "unet", .classes = head_size(shapes, "outc.conv.weight", 4)};
  const std::int64_t depth = count_of(shapes, "down", ".maxpool_conv.1.double_conv.0.weight", 1);
  const bool has_norm = shapes.contains("inc.double_conv.1.weight");
  const bool has_statistics = shapes.contains("inc.double_conv.1.running_mean");
  model.keys = {{"width", std::to_string(first->front())},
                {"depth", std::to_string(depth)},
                {"up", shapes.contains("up1.up.weight") ? "transposed" : "bilinear"},
                {"norm", has_statistics ? "batch"
                         : has_norm     ? "group"
                                        : "none"}};
  return model;
}

}  // namespace

ModelDescription describe_model(const TimmConfig& config, const std::vector<std::string>& models) {
  const std::string_view family = family_of(config.architecture);
  const std::vector<std::string> known = known_architectures(models);
  if (std::find(known.begin(), known.end(), config.architecture) == known.end()) {
    throw CheckpointError(
        config.path, quoted("architecture", config.architecture) + " is not supported; choose one of: " + joined(known))
        .as(CheckpointFault::incompatible);
  }
  ModelDescription model{.name = config.architecture,
                         .classes = config.num_classes,
                         .class_names = config.label_names,
                         .images = config.images};
  if (family == "resnet") model.keys.emplace_back("stem", "imagenet");
  const bool pools = family == "vit" && !config.global_pool.empty() && !config.model_args.contains("global_pool");
  if (pools) model.keys.emplace_back("global_pool", config.global_pool);
  for (const auto& [name, value] : config.model_args) {
    const TimmArgument* const argument = find_argument(family, name);
    if (argument == nullptr || !is_allowed(argument->allowed, value)) {
      throw CheckpointError(config.path, "model_args." + name + " = " + value.substr(0, 60) + " is not supported for " +
                                             config.architecture)
          .as(CheckpointFault::incompatible);
    }
    if (!argument->key.empty()) model.keys.emplace_back(argument->key, key_text(value));
  }
  return model;
}

std::optional<ModelDescription> identify_model(const TensorShapes& shapes) {
  for (const auto identify : {as_resnet, as_vit, as_convnext, as_unet}) {
    if (std::optional<ModelDescription> model = identify(shapes)) return model;
  }
  return std::nullopt;
}

}  // namespace lockstep::checkpoints
