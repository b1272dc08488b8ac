// SPDX-License-Identifier: BSD-3-Clause
#include "families/recognition.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <iterator>

#include "checkpoints/format/names.hpp"
#include "core/text/text.hpp"
#include "families/names.hpp"
#include "families/rows/rows.hpp"

namespace lockstep::families {

namespace {

using checkpoints::TimmConfig;

/// Arguments of every model of timm: settings that the file of the weights, the task or the initial values decide, and
/// what only affects training there.
const std::vector<PublicArgument>& common_arguments() {
  static const std::vector<PublicArgument> rows = {{.name = "num_classes"},
                                                   {.name = "in_chans"},
                                                   {.name = "img_size"},
                                                   {.name = "pretrained"},
                                                   {.name = "drop_rate", .unwritten = kOff},
                                                   {.name = "attn_drop_rate", .unwritten = kOff},
                                                   {.name = "proj_drop_rate", .unwritten = kOff},
                                                   {.name = "pos_drop_rate", .unwritten = kOff},
                                                   {.name = "patch_drop_rate", .unwritten = kOff}};
  return rows;
}

const PublicArgument* find_argument(const LibraryRow& library, const std::string& name) {
  for (const std::vector<PublicArgument>* rows : {&common_arguments(), &library.arguments}) {
    const auto found = std::ranges::find(*rows, name, &PublicArgument::name);
    if (found != rows->end()) return &*found;
  }
  return nullptr;
}

/// Whether a value needs no key, or has one.
bool is_possible(const PublicArgument* argument, const std::string& json) {
  if (argument == nullptr) return false;
  const bool is_any = !argument->key.empty() || argument->unwritten.empty();
  return is_any || std::ranges::count(words_in(argument->unwritten, ' '), json) > 0;
}

/// A JSON value as the text of a key: [3,3,9,3] is 3,3,9,3, and null is 0.
std::string key_text(const std::string& json) {
  if (json == "null") return "0";
  const bool is_wrapped = json.size() > 1 && (json.front() == '[' || json.front() == '"');
  return is_wrapped ? json.substr(1, json.size() - 2) : json;
}

/// The models of a family that folders of timm describe. A preset with the name of the family is one of any size.
std::vector<std::string> names_in_timm(const FamilyRow& family) {
  const LibraryRow* const timm = find_library(family, "timm");
  if (timm == nullptr || timm->arguments.empty()) return {};
  if (family.presets.empty()) return {family.name};
  std::vector<std::string> names;
  for (const ModelPreset& preset : family.presets) {
    if (preset.name != family.name) names.push_back(preset.name);
  }
  return names;
}

/// The family with this architecture.
const FamilyRow& family_of(const TimmConfig& config, const std::vector<FamilyRow>& families) {
  std::vector<std::string> known;
  for (const FamilyRow& family : families) {
    const std::vector<std::string> names = names_in_timm(family);
    if (std::ranges::count(names, config.architecture) > 0) return family;
    known.insert(known.end(), names.begin(), names.end());
  }
  throw CheckpointError(config.path, checkpoints::quoted("architecture", config.architecture) +
                                         " is not supported; choose one of: " + joined(known))
      .as(CheckpointFault::incompatible);
}

bool has_key(const FamilyRow& family, const std::string& key) {
  return std::ranges::find(family.keys, "model." + key, &KeySpec::name) != family.keys.end();
}

/// Whether the sizes without a key are those of the preset.
bool is_preset_of(const FamilyRow& family, const ModelPreset& preset, const ModelKeys& sizes) {
  return std::ranges::all_of(preset.sizes, [&](const auto& size) {
    return has_key(family, size.first) || value_of(sizes, size.first) == size.second;
  });
}

std::optional<std::string> recognized_name(const FamilyRow& family, const ModelKeys& sizes) {
  if (family.presets.empty()) return family.name;
  const auto found = std::ranges::find_if(
      family.presets, [&](const ModelPreset& preset) { return is_preset_of(family, preset, sizes); });
  return found == family.presets.end() ? std::nullopt : std::optional(found->name);
}

std::int64_t classes_in(const FamilyRow& family, const TensorShapes& shapes) {
  for (const std::string& head : family.head) {
    const auto weight = shapes.find(head + ".weight");
    if (weight != shapes.end() && !weight->second.empty()) return weight->second.front();
  }
  return 0;
}

}  // namespace

ModelDescription describe_model(const TimmConfig& config, const std::vector<FamilyRow>& families) {
  const FamilyRow& family = family_of(config, families);
  const LibraryRow& timm = *find_library(family, "timm");
  ModelDescription model{.name = config.architecture,
                         .keys = timm.settings,
                         .classes = config.num_classes,
                         .class_names = config.label_names,
                         .images = config.images};
  const bool pools = !config.global_pool.empty() && !config.model_args.contains("global_pool");
  if (pools && has_key(family, "global_pool")) model.keys.emplace_back("global_pool", config.global_pool);
  for (const auto& [name, value] : config.model_args) {
    const PublicArgument* const argument = find_argument(timm, name);
    if (!is_possible(argument, value)) {
      throw CheckpointError(config.path, "model_args." + name + " = " + value.substr(0, 60) + " is not supported for " +
                                             config.architecture)
          .as(CheckpointFault::incompatible);
    }
    if (!argument->key.empty()) model.keys.emplace_back(argument->key, key_text(value));
  }
  return model;
}

std::optional<ModelDescription> identify_model(const FamilyRow& family, const TensorShapes& shapes) {
  const std::optional<ModelKeys> sizes = family.sizes_of ? family.sizes_of(shapes) : std::nullopt;
  const std::optional<std::string> name = sizes ? recognized_name(family, *sizes) : std::nullopt;
  if (!name) return std::nullopt;
  ModelDescription model{.name = *name, .classes = classes_in(family, shapes)};
  std::ranges::copy_if(*sizes, std::back_inserter(model.keys),
                       [&family](const auto& size) { return has_key(family, size.first); });
  return model;
}

}  // namespace lockstep::families
