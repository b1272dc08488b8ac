// SPDX-License-Identifier: BSD-3-Clause
#include "families/public_model.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

#include "checkpoints/disk/disk.hpp"
#include "core/text/text.hpp"
#include "families/names.hpp"

namespace lockstep::families {

namespace {

[[noreturn]] void refuse_model(const std::string& message) {
  throw CheckpointError(message).as(CheckpointFault::incompatible);
}

/// The family of the model `name`, or null.
const FamilyRow* find_family(const std::vector<FamilyRow>& families, const std::string& name) {
  const auto found = std::ranges::find_if(families, [&name](const FamilyRow& family) {
    return family.presets.empty() ? family.name == name
                                  : std::ranges::find(family.presets, name, &ModelPreset::name) != family.presets.end();
  });
  return found == families.end() ? nullptr : &*found;
}

/// The library's name of one of our modules.
std::string public_module(const LibraryRow& library, const std::string& module) {
  constexpr std::string_view kWeight = ".weight";
  const auto mapped = to_public_name(library.names, module + std::string(kWeight));
  return mapped ? mapped->name.substr(0, mapped->name.size() - kWeight.size()) : module;
}

/// Reads head and stem from the shapes.
void find_ends(const FamilyRow& family, const LibraryRow& library, const TrainedModel& model, PublicModel& result) {
  for (const std::string& head : family.head) {
    const auto weight = model.shapes.find(head + ".weight");
    if (weight == model.shapes.end() || weight->second.empty()) continue;
    result.head = public_module(library, head);
    result.classes = weight->second.front();
    break;
  }
  if (family.stem.empty()) return;
  result.stem = public_module(library, family.stem);
  result.channels = shape_of(model, library.name, family.stem + ".weight", 4)[1];
  if (library.name == "torchvision" && result.channels != 3) {
    refuse(model, library.name, "images of " + std::to_string(result.channels) + " channels; its models read 3");
  }
}

/// The value of a key in the syntax of JSON and Python.
std::string python_text(const FamilyRow& family, const std::string& key, const std::string& value) {
  const auto spec = std::ranges::find(family.keys, "model." + key, &KeySpec::name);
  if (spec == family.keys.end()) return value;
  if (spec->type == KeyType::integers || spec->type == KeyType::reals) return "[" + joined(words_in(value)) + "]";
  const bool is_word = spec->type == KeyType::choice && value != "true" && value != "false";
  return is_word || spec->type == KeyType::text ? "\"" + value + "\"" : value;
}

/// The sizes that the tensors state, or else the configuration.
ModelKeys sizes_of(const FamilyRow& family, const TrainedModel& model) {
  if (family.sizes_of) return family.sizes_of(model.shapes).value_or(ModelKeys());
  return {model.keys.begin(), model.keys.end()};
}

using OrderedJson = nlohmann::ordered_json;

std::string text_of_json(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

/// The entry pretrained_cfg.
OrderedJson pretrained_cfg(const PublicWeights& weights) {
  const PublicModel& model = weights.model;
  OrderedJson json = {{"custom_load", false}};
  if (model.height > 0 && model.width > 0) json["input_size"] = {model.channels, model.height, model.width};
  json["fixed_input_size"] = model.has_fixed_size;
  if (!weights.input.interpolation.empty()) json["interpolation"] = weights.input.interpolation;
  json["crop_pct"] = weights.input.crop_fraction;
  json["crop_mode"] = weights.input.crop_mode;
  if (!weights.input.mean.empty()) {
    json["mean"] = weights.input.mean;
    json["std"] = weights.input.deviation;
  }
  json["num_classes"] = model.classes;
  json["first_conv"] = model.stem;
  if (!model.head.empty()) json["classifier"] = model.head;
  return json;
}

}  // namespace

void refuse(const TrainedModel& model, const std::string& library, const std::string& reason) {
  refuse_model("model.name = " + model.name + ": " + library + " lacks a model with " + reason);
}

const std::vector<std::int64_t>& shape_of(const TrainedModel& model, const std::string& library,
                                          const std::string& name, std::size_t dims) {
  const auto found = model.shapes.find(name);
  if (found != model.shapes.end() && found->second.size() == dims) return found->second;
  refuse_model("model.name = " + model.name + ": the checkpoint has no '" + name + "' of " + std::to_string(dims) +
               " dimensions, which the models of " + library + " have");
}

std::optional<std::string> value_of(const ModelKeys& settings, const std::string& key) {
  const auto found = std::ranges::find(settings, key, &ModelKeys::value_type::first);
  return found == settings.end() ? std::nullopt : std::optional(found->second);
}

ModelKeys arguments_of(const FamilyRow& family, const std::string& library, const ModelKeys& sizes) {
  ModelKeys arguments;
  for (const PublicArgument& argument : find_library(family, library)->arguments) {
    const auto value = argument.key.empty() ? std::nullopt : value_of(sizes, argument.key);
    if (value && std::ranges::count(words_in(argument.unwritten, ' '), *value) > 0) continue;
    const std::string text = value ? python_text(family, argument.key, *value) : argument.otherwise;
    if (!text.empty()) arguments.emplace_back(argument.name, text);
  }
  return arguments;
}

std::vector<std::string> library_names(const std::vector<FamilyRow>& families) {
  std::set<std::string> names;
  for (const FamilyRow& family : families) {
    for (const LibraryRow& library : family.libraries) names.insert(library.name);
  }
  return {names.begin(), names.end()};
}

PublicModel public_model(const std::string& library, const TrainedModel& model,
                         const std::vector<FamilyRow>& families) {
  const FamilyRow* const family = find_family(families, model.name);
  const LibraryRow* const row = family == nullptr ? nullptr : find_library(*family, library);
  if (row == nullptr || row->is_import_only) {
    refuse_model("model.name = " + model.name + ": " + library +
                 " lacks this model; without --as, convert writes the tensors under their own names");
  }
  PublicModel result{.library = library,
                     .function = model.name,
                     .names = row->names,
                     .late = row->late,
                     .before_late = row->before_late,
                     .channels = model.channels,
                     .height = model.height,
                     .width = model.width};
  find_ends(*family, *row, model, result);
  result.arguments = arguments_of(*family, library, sizes_of(*family, model));
  if (row->complete) row->complete(*family, model, result);
  return result;
}

std::string python_call(const PublicModel& model) {
  const bool is_timm = model.library == "timm";
  const bool is_torchvision = model.library == "torchvision";
  std::string text = is_timm          ? "timm.create_model(\"" + model.function + "\", "
                     : is_torchvision ? "torchvision.models." + model.function + "("
                                      : model.function + "(";
  for (const auto& [name, value] : model.arguments) {
    const bool is_flag = value == "true" || value == "false";
    text += name + "=" + (is_flag ? (value == "true" ? "True" : "False") : value) + ", ";
  }
  if (is_timm && model.channels != 3) text += "in_chans=" + std::to_string(model.channels) + ", ";
  return text + "num_classes=" + std::to_string(model.classes) + ")";
}

std::vector<PublicName> public_names(const PublicModel& model, const std::vector<std::string>& ours) {
  std::vector<PublicName> names;
  for (const std::string& name : ours) {
    const std::optional<MappedName> mapped = model.names.empty() ? MappedName{name} : to_public_name(model.names, name);
    if (!mapped) {
      refuse_model("'" + name + "' has no counterpart in the models of " + model.library +
                   ", so that they cannot compute the same");
    }
    names.push_back({name, mapped->name, mapped->operation});
  }
  if (model.late.empty()) return names;
  const auto late = std::ranges::find(names, model.late, &PublicName::ours);
  const auto before = std::find_if(names.rbegin(), names.rend(), [&](const PublicName& name) {
                        return name.ours.starts_with(model.before_late);
                      }).base();
  if (late < before) std::rotate(late, late + 1, before);
  return names;
}

std::string timm_config(const PublicWeights& weights) {
  const PublicModel& model = weights.model;
  OrderedJson json = {{"architecture", model.function}, {"num_classes", model.classes}};
  if (!weights.class_names.empty()) json["label_names"] = weights.class_names;
  OrderedJson arguments = {{"in_chans", model.channels}};
  for (const auto& [name, value] : model.arguments) arguments[name] = OrderedJson::parse(value);
  json["model_args"] = arguments;
  json["pretrained_cfg"] = pretrained_cfg(weights);
  return text_of_json(json, 2) + "\n";
}

void write_timm_folder(const std::string& path, const PublicWeights& weights) {
  if (checkpoints::exists(path)) {
    throw CheckpointError(path, "the folder already exists and is not overwritten").as(CheckpointFault::refused);
  }
  const std::filesystem::path target =
      std::filesystem::path(path + "/").parent_path();  // target without slashes at its end
  const std::string parent = target.has_parent_path() ? target.parent_path().string() : ".";
  checkpoints::make_folders(parent);
  const checkpoints::StagedFolder folder(parent + "/" + checkpoints::temporary_name(target.filename().string()));
  checkpoints::write_file(folder.path() + "/config.json", timm_config(weights));
  checkpoints::write_foreign(folder.path() + "/model.safetensors", checkpoints::ExportKind::safetensors, weights.arrays,
                             {{"format", "pt"}});
  checkpoints::sync_folder(folder.path());
  checkpoints::move(folder.path(), target.string());
  checkpoints::sync_folder(parent);
}

void write_state_dict(const std::string& path, checkpoints::ExportKind kind, const PublicWeights& weights) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}, {"architecture", python_call(weights.model)}};
  if (!weights.class_names.empty()) metadata["class_names"] = text_of_json(weights.class_names, -1);
  if (!weights.input.mean.empty()) {
    metadata["mean"] = text_of_json(weights.input.mean, -1);
    metadata["std"] = text_of_json(weights.input.deviation, -1);
  }
  checkpoints::write_foreign(path, kind, weights.arrays, metadata);
}

}  // namespace lockstep::families
