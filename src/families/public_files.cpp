// SPDX-License-Identifier: BSD-3-Clause
#include "families/public_files.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/disk/stale_files.hpp"

namespace lockstep::families {

namespace {

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
