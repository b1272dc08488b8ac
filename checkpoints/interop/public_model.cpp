// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/public_model.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

namespace lockstep::checkpoints {

namespace {

using Shape = std::vector<std::int64_t>;

[[noreturn]] void refuse_model(const std::string& message) {
  throw CheckpointError(message).as(CheckpointFault::incompatible);
}

/// A trained model and the library for which it is described.
struct Request {
  const TrainedModel& model;
  std::string_view library;

  bool is_timm() const { return library == "timm"; }
  bool has(const std::string& name) const { return model.shapes.contains(name); }

  [[noreturn]] void refuse(const std::string& what) const {
    refuse_model("model.name = " + model.name + ": " + std::string(library) + " lacks a model with " + what);
  }

  const Shape& shape(const std::string& name, std::size_t dims) const {
    const auto found = model.shapes.find(name);
    if (found == model.shapes.end() || found->second.size() != dims) {
      refuse_model("model.name = " + model.name + ": the checkpoint has no '" + name + "' of " + std::to_string(dims) +
                   " dimensions, which the models of " + std::string(library) + " have");
    }
    return found->second;
  }

  /// Number of modules `beginning` + "0", "1", ... that have the tensor `end`.
  std::int64_t count(const std::string& beginning, const std::string& end) const {
    std::int64_t count = 0;
    while (has(beginning + std::to_string(count) + end)) ++count;
    return count;
  }

  /// An integer of section `model`; 0 if it is not set.
  std::int64_t integer(const std::string& key) const {
    const auto found = model.keys.find(key);
    std::int64_t value = 0;
    if (found != model.keys.end()) {
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    }
    return value;
  }
};

std::string list_text(const Shape& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

/// The sizes that are read from the shapes of the first convolution and of the head, by our names.
PublicModel begin(const Request& request, const std::string& stem, const std::string& head) {
  const Shape& weight = request.shape(stem + ".weight", 4);
  if (!request.is_timm() && weight[1] != 3) {
    request.refuse("images of " + std::to_string(weight[1]) + " channels; its models read 3");
  }
  PublicModel result{.library = std::string(request.library),
                     .function = request.model.name,
                     .names = find_name_map(request.library, request.model.name),
                     .head = head,
                     .stem = stem,
                     .channels = weight[1],
                     .height = request.model.height,
                     .width = request.model.width};
  if (request.has(head + ".weight")) {
    result.classes = request.shape(head + ".weight", 2)[0];
  } else {
    result.head.clear();
  }
  return result;
}

// --- ResNet ---

constexpr std::string_view kResNets[] = {"resnet18",        "resnet34",        "resnet50",         "resnet101",
                                         "resnet152",       "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d",
                                         "wide_resnet50_2", "wide_resnet101_2"};
constexpr std::int64_t kResNetWidth = 64;
constexpr std::int64_t kImagenetKernel = 7;

PublicModel resnet(const Request& request) {
  PublicModel result = begin(request, "conv1", "fc");
  const Shape& stem = request.shape("conv1.weight", 4);
  if (stem[2] != kImagenetKernel) request.refuse("the stem of small images (model.stem = small)");
  if (stem[0] != kResNetWidth) request.refuse("model.width = " + std::to_string(stem[0]) + "; it has 64");
  if (!request.has("layer1.0.conv3.weight")) return result;  // no bottlenecks
  const Shape& grouped = request.shape("layer1.0.conv2.weight", 4);
  const bool is_timm = request.is_timm();
  result.arguments = {
      {is_timm ? "cardinality" : "groups", std::to_string(grouped[0] / std::max<std::int64_t>(grouped[1], 1))},
      {is_timm ? "base_width" : "width_per_group", std::to_string(grouped[1])}};
  return result;
}

// --- ViT ---

/// Attention heads of the models by a part of their names.
struct VitHeads {
  std::string_view part;
  std::int64_t heads;
};
constexpr VitHeads kVitHeads[] = {{"_tiny_", 3},   {"_small_", 6}, {"_base_", 12},
                                  {"_large_", 16}, {"vit_b_", 12}, {"vit_l_", 16}};
constexpr std::int64_t kOtherVitHeads = 3;  // number of heads of model.name=vit

/// A vision transformer of torchvision.
struct TorchvisionVit {
  std::string_view name;
  std::string_view timm;  ///< name in timm of the model of this size
  std::int64_t patch_size, depth, heads, embed_dim, hidden;
};
constexpr TorchvisionVit kTorchvisionVits[] = {
    {"vit_b_16", "vit_base_patch16_224", 16, 12, 12, 768, 3072},
    {"vit_b_32", "vit_base_patch32_224", 32, 12, 12, 768, 3072},
    {"vit_l_16", "vit_large_patch16_224", 16, 24, 16, 1024, 4096},
    {"vit_l_32", "vit_large_patch32_224", 32, 24, 16, 1024, 4096},
};
constexpr const char* kAnyTimmVit = "vit_tiny_patch16_224";  // any timm vit: whose arguments are all given

std::int64_t heads_of(const Request& request) {
  if (const std::int64_t heads = request.integer("num_heads"); heads > 0) return heads;
  for (const VitHeads& row : kVitHeads) {
    if (request.model.name.find(row.part) != std::string::npos) return row.heads;
  }
  return kOtherVitHeads;
}

struct VitSizes {
  std::int64_t patch_size, depth, heads, embed_dim, hidden;
  std::int64_t tokens;  ///< that have positions
};

VitSizes vit_sizes(const Request& request) {
  const Shape& patches = request.shape("patch_embed.proj.weight", 4);
  return {.patch_size = patches[2],
          .depth = request.count("blocks.", ".norm1.weight"),
          .heads = heads_of(request),
          .embed_dim = patches[0],
          .hidden = request.shape("blocks.0.mlp.fc1.weight", 2)[0],
          .tokens = request.shape("pos_embed", 3)[1]};
}

/// The factor with which the library computes the hidden features, by truncation.
std::string mlp_ratio(const VitSizes& sizes) {
  if (sizes.hidden % sizes.embed_dim == 0) return std::to_string(sizes.hidden / sizes.embed_dim);
  double ratio = static_cast<double>(sizes.hidden) / static_cast<double>(sizes.embed_dim);
  if (static_cast<std::int64_t>(static_cast<double>(sizes.embed_dim) * ratio) < sizes.hidden) {
    ratio = std::nextafter(ratio, 2 * ratio);
  }
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), ratio).ptr;
  return {text, end};
}

/// Height and width of the images, from the positions of a square grid if they are not known.
void find_vit_size(const Request& request, const VitSizes& sizes, std::int64_t prefix, PublicModel& result) {
  const std::int64_t cells = sizes.tokens - prefix;
  if (result.height <= 0 || result.width <= 0) {
    const auto side =
        static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(std::max<std::int64_t>(cells, 0)))));
    result.height = result.width = side * sizes.patch_size;
  }
  const std::int64_t grid = (result.height / sizes.patch_size) * (result.width / sizes.patch_size);
  if (cells != grid) request.refuse(std::to_string(sizes.tokens) + " positions for a grid of " + std::to_string(grid));
}

PublicModel timm_vit(const Request& request, const VitSizes& sizes, PublicModel result) {
  const auto torchvision = std::find_if(std::begin(kTorchvisionVits), std::end(kTorchvisionVits),
                                        [&](const TorchvisionVit& row) { return row.name == request.model.name; });
  if (torchvision != std::end(kTorchvisionVits)) result.function = torchvision->timm;
  if (request.model.name == "vit") result.function = kAnyTimmVit;
  const std::int64_t reg_tokens = request.has("reg_token") ? request.shape("reg_token", 3)[1] : 0;
  const std::int64_t prefix = (request.has("cls_token") ? 1 : 0) + reg_tokens;
  const auto key = request.model.keys.find("no_embed_class");
  const bool has_setting = key != request.model.keys.end() && key->second != "auto";
  const bool is_deit3 = request.model.name.starts_with("deit3_");
  const bool no_embed_class = has_setting ? key->second == "true" : is_deit3;
  find_vit_size(request, sizes, no_embed_class ? 0 : prefix, result);
  const auto flag = [](bool is_set) { return std::string(is_set ? "true" : "false"); };
  result.arguments = {{"img_size", list_text({result.height, result.width})},
                      {"patch_size", std::to_string(sizes.patch_size)},
                      {"embed_dim", std::to_string(sizes.embed_dim)},
                      {"depth", std::to_string(sizes.depth)},
                      {"num_heads", std::to_string(sizes.heads)},
                      {"mlp_ratio", mlp_ratio(sizes)},
                      {"class_token", flag(request.has("cls_token"))},
                      {"reg_tokens", std::to_string(reg_tokens)},
                      {"no_embed_class", flag(no_embed_class)},
                      {"global_pool", request.has("fc_norm.weight") ? "\"avg\"" : "\"token\""},
                      {"qkv_bias", flag(request.has("blocks.0.attn.qkv.bias"))},
                      {"qk_norm", flag(request.has("blocks.0.attn.q_norm.weight"))},
                      {"pre_norm", flag(request.has("norm_pre.weight"))}};
  // The value is the initial one of parameters that are loaded; that there is one creates them.
  if (request.has("blocks.0.ls1.gamma")) result.arguments.emplace_back("init_values", "1e-05");
  return result;
}

PublicModel torchvision_vit(const Request& request, const VitSizes& sizes, PublicModel result) {
  if (!request.has("cls_token")) request.refuse("model.class_token = false");
  if (!request.has("blocks.0.attn.qkv.bias")) request.refuse("model.qkv_bias = false");
  if (!request.has("head.weight")) request.refuse("no head");
  find_vit_size(request, sizes, 1, result);
  if (result.height != result.width) request.refuse("images that are not square");
  result.head = "heads.head";
  result.stem = "conv_proj";
  result.arguments = {{"image_size", std::to_string(result.height)}};
  for (const TorchvisionVit& row : kTorchvisionVits) {
    const bool is_it = row.patch_size == sizes.patch_size && row.depth == sizes.depth && row.heads == sizes.heads &&
                       row.embed_dim == sizes.embed_dim && row.hidden == sizes.hidden;
    if (!is_it) continue;
    result.function = row.name;
    return result;
  }
  result.function = "VisionTransformer";
  for (const auto& [name, value] : {std::pair("patch_size", sizes.patch_size), std::pair("num_layers", sizes.depth),
                                    std::pair("num_heads", sizes.heads), std::pair("hidden_dim", sizes.embed_dim),
                                    std::pair("mlp_dim", sizes.hidden)}) {
    result.arguments.emplace_back(name, std::to_string(value));
  }
  return result;
}

PublicModel vit(const Request& request) {
  PublicModel result = begin(request, "patch_embed.proj", "head");
  result.has_fixed_size = true;
  result.names = find_name_map(request.library, "vit");
  const VitSizes sizes = vit_sizes(request);
  return request.is_timm() ? timm_vit(request, sizes, std::move(result))
                           : torchvision_vit(request, sizes, std::move(result));
}

// --- ConvNeXt ---

struct ConvNextSizes {
  std::string_view name;
  Shape depths;
  Shape widths;
};

const std::vector<ConvNextSizes>& named_convnexts() {
  static const std::vector<ConvNextSizes> rows = {{"convnext_tiny", {3, 3, 9, 3}, {96, 192, 384, 768}},
                                                  {"convnext_small", {3, 3, 27, 3}, {96, 192, 384, 768}},
                                                  {"convnext_base", {3, 3, 27, 3}, {128, 256, 512, 1024}},
                                                  {"convnext_large", {3, 3, 27, 3}, {192, 384, 768, 1536}}};
  return rows;
}

/// "[CNBlockConfig(96, 192, 3), ..., CNBlockConfig(768, None, 3)]"
std::string block_settings(const Shape& depths, const Shape& widths) {
  std::string text;
  for (std::size_t s = 0; s < depths.size(); ++s) {
    const std::string next = s + 1 < widths.size() ? std::to_string(widths[s + 1]) : "None";
    text += (s == 0 ? "[" : ", ") + std::string("torchvision.models.convnext.CNBlockConfig(") +
            std::to_string(widths[s]) + ", " + next + ", " + std::to_string(depths[s]) + ")";
  }
  return text + "]";
}

PublicModel convnext(const Request& request) {
  constexpr std::size_t kTimmStages = 4;
  PublicModel result = begin(request, "stem.0", "head.fc");
  Shape depths;
  Shape widths;
  const std::int64_t stages = request.count("stages.", ".blocks.0.gamma");
  for (std::int64_t s = 0; s < stages; ++s) {
    const std::string blocks = "stages." + std::to_string(s) + ".blocks.";
    depths.push_back(request.count(blocks, ".gamma"));
    widths.push_back(request.shape(blocks + "0.gamma", 1)[0]);
  }
  if (!request.is_timm()) {
    result.head = "classifier.2";
    result.stem = "features.0.0";
  }
  for (const ConvNextSizes& row : named_convnexts()) {
    if (row.depths != depths || row.widths != widths) continue;
    result.function = row.name;
    return result;
  }
  if (request.is_timm() && depths.size() != kTimmStages) {
    request.refuse(std::to_string(depths.size()) + " stages; it has 4");
  }
  result.function = request.is_timm() ? "convnext_tiny" : "ConvNeXt";
  if (request.is_timm()) {
    result.arguments = {{"depths", list_text(depths)}, {"dims", list_text(widths)}};
  } else {
    result.arguments = {{"block_setting", block_settings(depths, widths)}};
  }
  return result;
}

// --- MobileNet and EfficientNet ---

constexpr std::string_view kMobileNets[] = {"mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
                                            "efficientnet_b0"};

PublicModel mobile_net(const Request& request) {
  if (request.is_timm()) request.refuse("these parameters, which are those of torchvision");
  const std::string head = request.has("classifier.3.weight") ? "classifier.3" : "classifier.1";
  PublicModel result = begin(request, "features.0.0", head);
  const auto found = request.model.keys.find("width_mult");
  if (found == request.model.keys.end() || found->second == "1") return result;
  if (request.model.name == "efficientnet_b0") request.refuse("model.width_mult = " + found->second);
  result.arguments = {{"width_mult", found->second}};
  return result;
}

// --- the table ---

/// Models that other libraries have.
struct Family {
  bool (*has)(std::string_view name);
  PublicModel (*describe)(const Request& request);
};

bool is_below(std::string_view name, std::string_view family) {
  return name == family || (name.starts_with(family) && name[family.size()] == '_');
}

constexpr Family kFamilies[] = {
    {[](std::string_view name) { return std::ranges::find(kResNets, name) != std::end(kResNets); }, resnet},
    {[](std::string_view name) { return std::ranges::find(kMobileNets, name) != std::end(kMobileNets); }, mobile_net},
    {[](std::string_view name) { return is_below(name, "vit") || is_below(name, "deit3"); }, vit},
    {[](std::string_view name) { return is_below(name, "convnext"); }, convnext},
};

}  // namespace

PublicModel public_model(std::string_view library, const TrainedModel& model) {
  for (const Family& family : kFamilies) {
    if (family.has(model.name)) return family.describe({model, library});
  }
  refuse_model("model.name = " + model.name + ": " + std::string(library) +
               " lacks this model; without --as, convert writes the tensors under their own names");
}

std::string python_call(const PublicModel& model) {
  std::string text = (model.library == "timm" ? "timm.create_model(\"" + model.function + "\", "
                                              : "torchvision.models." + model.function + "(");
  const bool is_timm = model.library == "timm";
  for (const auto& [name, value] : model.arguments) {
    const bool is_flag = is_timm && (value == "true" || value == "false");
    text += name + "=" + (is_flag ? (value == "true" ? "True" : "False") : value) + ", ";
  }
  if (is_timm && model.channels != 3) text += "in_chans=" + std::to_string(model.channels) + ", ";
  return text + "num_classes=" + std::to_string(model.classes) + ")";
}

std::vector<PublicName> public_names(const PublicModel& model, const std::vector<std::string>& ours) {
  std::vector<PublicName> names;
  for (const std::string& name : ours) {
    if (model.names == nullptr) {
      names.push_back({name, name});
      continue;
    }
    const auto mapped = to_public_name(*model.names, name);
    if (!mapped) {
      refuse_model("'" + name + "' has no counterpart in the models of " + model.library +
                   ", so that they cannot compute the same");
    }
    names.push_back({name, mapped->name, mapped->operation});
  }
  if (model.names == nullptr || model.names->late.empty()) return names;
  const auto late =
      std::find_if(names.begin(), names.end(), [&](const PublicName& name) { return name.ours == model.names->late; });
  const auto before = std::find_if(names.rbegin(), names.rend(), [&](const PublicName& name) {
                        return name.ours.starts_with(model.names->before_late);
                      }).base();
  if (late < before) std::rotate(late, late + 1, before);
  return names;
}

}  // namespace lockstep::checkpoints
