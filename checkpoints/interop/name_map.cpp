// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/name_map.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace lockstep::checkpoints {

namespace {

constexpr NameRow kTorchvisionVit[] = {
    {"cls_token", "class_token"},
    {"pos_embed", "encoder.pos_embedding"},
    {"patch_embed.proj.*", "conv_proj.*"},
    {"blocks.{i}.norm1.*", "encoder.layers.encoder_layer_{i}.ln_1.*"},
    {"blocks.{i}.attn.qkv.weight", "encoder.layers.encoder_layer_{i}.self_attention.in_proj_weight"},
    {"blocks.{i}.attn.qkv.bias", "encoder.layers.encoder_layer_{i}.self_attention.in_proj_bias"},
    {"blocks.{i}.attn.proj.*", "encoder.layers.encoder_layer_{i}.self_attention.out_proj.*"},
    {"blocks.{i}.norm2.*", "encoder.layers.encoder_layer_{i}.ln_2.*"},
    {"blocks.{i}.mlp.fc1.*", "encoder.layers.encoder_layer_{i}.mlp.0.*"},
    {"blocks.{i}.mlp.fc2.*", "encoder.layers.encoder_layer_{i}.mlp.3.*"},
    {"blocks.{i}.mlp.fc1.*", "encoder.layers.encoder_layer_{i}.mlp.linear_1.*"},  // names in version 1 of the blocks
    {"blocks.{i}.mlp.fc2.*", "encoder.layers.encoder_layer_{i}.mlp.linear_2.*"},
    {"norm.*", "encoder.ln.*"},
    {"head.*", "heads.head.*"},
};

constexpr NameRow kTorchvisionConvNext[] = {
    {"stem.0.*", "features.0.0.*"},
    {"stem.1.*", "features.0.1.*"},
    {"stages.{s}.blocks.{i}.conv_dw.*", "features.{2s+1}.{i}.block.0.*"},
    {"stages.{s}.blocks.{i}.norm.*", "features.{2s+1}.{i}.block.2.*"},
    {"stages.{s}.blocks.{i}.mlp.fc1.*", "features.{2s+1}.{i}.block.3.*"},
    {"stages.{s}.blocks.{i}.mlp.fc2.*", "features.{2s+1}.{i}.block.5.*"},
    {"stages.{s}.blocks.{i}.gamma", "features.{2s+1}.{i}.layer_scale", NameOperation::channel_scale},
    {"stages.{s}.downsample.0.*", "features.{2s}.0.*"},
    {"stages.{s}.downsample.1.*", "features.{2s}.1.*"},
    {"head.norm.*", "classifier.0.*"},
    {"head.fc.*", "classifier.2.*"},
};

/// The encoder of a U-Net is a ResNet.
constexpr NameRow kTorchvisionUnetResNet[] = {
    {"encoder.conv1.*", "conv1.*"},
    {"encoder.bn1.*", "bn1.*"},
    {"encoder.layer{s}.{i}.conv{n}.*", "layer{s}.{i}.conv{n}.*"},
    {"encoder.layer{s}.{i}.bn{n}.*", "layer{s}.{i}.bn{n}.*"},
    {"encoder.layer{s}.{i}.downsample.{n}.*", "layer{s}.{i}.downsample.{n}.*"},
};

constexpr NameMap kMaps[] = {
    {"torchvision", "vit", kTorchvisionVit, "pos_embed", "patch_embed."},
    {"torchvision", "convnext", kTorchvisionConvNext},
    {"torchvision", "unet_resnet18", kTorchvisionUnetResNet},
    {"torchvision", "unet_resnet34", kTorchvisionUnetResNet},
    {"torchvision", "unet_resnet50", kTorchvisionUnetResNet},
};

constexpr char kLastPart = '*';  // letter that stands for the last part of a name
constexpr std::int64_t kMaxNumber = 1'000'000;

/// factor * value + offset, of the value that a letter stands for.
struct Place {
  char letter = 0;
  std::int64_t factor = 1;
  std::int64_t offset = 0;
};

std::int64_t number_at(std::string_view& text, std::int64_t otherwise) {
  std::int64_t number = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() ? number : otherwise;
}

/// Removes "{2s+1}" from the front of a pattern.
Place place_at(std::string_view& pattern) {
  pattern.remove_prefix(1);
  Place place;
  place.factor = number_at(pattern, 1);
  place.letter = pattern.front();
  pattern.remove_prefix(1);
  if (pattern.front() == '+') {
    pattern.remove_prefix(1);
    place.offset = number_at(pattern, 0);
  }
  pattern.remove_prefix(1);
  return place;
}

using Values = std::map<char, std::string>;  // values by letter, numbers in decimal

/// Whether `name` begins with a number that the place can have. Removes the number.
bool take_number(std::string_view& name, const Place& place, Values& values) {
  const bool is_canonical = !name.empty() && name[0] >= '0' && name[0] <= '9' &&
                            (name[0] != '0' || name.size() == 1 || name[1] < '0' || name[1] > '9');
  if (!is_canonical) return false;
  const std::int64_t number = number_at(name, -1) - place.offset;
  if (number < 0 || number > kMaxNumber || number % place.factor != 0) return false;
  const std::string value = std::to_string(number / place.factor);
  return values.emplace(place.letter, value).first->second == value;
}

std::optional<Values> match(std::string_view pattern, std::string_view name) {
  Values values;
  while (!pattern.empty()) {
    if (pattern == "*") {
      values.emplace(kLastPart, name);
      const bool is_one_part = !name.empty() && name.find('.') == std::string_view::npos;
      return is_one_part ? std::optional(values) : std::nullopt;
    }
    if (pattern.front() == '{') {
      if (!take_number(name, place_at(pattern), values)) return std::nullopt;
      continue;
    }
    if (name.empty() || name.front() != pattern.front()) return std::nullopt;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  return name.empty() ? std::optional(values) : std::nullopt;
}

std::string filled(std::string_view pattern, const Values& values) {
  std::string name;
  while (!pattern.empty()) {
    if (pattern.front() == '{') {
      const Place place = place_at(pattern);
      name += std::to_string(std::stoll(values.at(place.letter)) * place.factor + place.offset);
      continue;
    }
    name += pattern == "*" ? values.at(kLastPart) : std::string(1, pattern.front());
    pattern.remove_prefix(1);
  }
  return name;
}

std::optional<MappedName> mapped(const NameMap& map, std::string_view name, std::string_view NameRow::*from,
                                 std::string_view NameRow::*target) {
  for (const NameRow& row : map.rows) {
    if (const auto values = match(row.*from, name)) return MappedName{filled(row.*target, *values), row.operation};
  }
  return std::nullopt;
}

}  // namespace

std::span<const NameMap> name_maps() { return kMaps; }

const NameMap* find_name_map(std::string_view library, std::string_view model) {
  const auto found = std::find_if(std::begin(kMaps), std::end(kMaps), [&](const NameMap& map) {
    const bool is_family = model == map.family || (model.starts_with(map.family) && model[map.family.size()] == '_');
    return map.library == library && is_family;
  });
  return found == std::end(kMaps) ? nullptr : &*found;
}

std::optional<MappedName> to_own_name(const NameMap& map, std::string_view theirs) {
  return mapped(map, theirs, &NameRow::theirs, &NameRow::ours);
}

std::optional<MappedName> to_public_name(const NameMap& map, std::string_view ours) {
  return mapped(map, ours, &NameRow::ours, &NameRow::theirs);
}

std::vector<std::int64_t> to_own_shape(NameOperation operation, std::vector<std::int64_t> theirs) {
  const bool is_scale = operation == NameOperation::channel_scale && theirs.size() == 3 && theirs[1] == 1;
  if (is_scale && theirs[2] == 1) theirs.resize(1);
  return theirs;
}

std::vector<std::int64_t> to_public_shape(NameOperation operation, std::vector<std::int64_t> ours) {
  if (operation == NameOperation::channel_scale && ours.size() == 1) ours.resize(3, 1);
  return ours;
}

}  // namespace lockstep::checkpoints
