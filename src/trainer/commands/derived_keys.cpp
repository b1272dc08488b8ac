// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/commands/derived_keys.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "data/transforms/evaluation_lines.hpp"
#include "data/transforms/presets.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/setup/teacher.hpp"
#include "engine/state/init_names.hpp"
#include "engine/state/resume_settings.hpp"
#include "families/recognition.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;

/// Keys with their sections and values, in order.
using Settings = std::vector<std::pair<std::string, std::string>>;

bool is_default(const config::Config& config, const std::string& key) {
  return config.section(config::section_of(key)).is_default(config::key_of(key));
}

families::ModelDescription described_folder(const std::string& folder, const CommandJob& job,
                                            const config::Config& config) {
  const Section& model = config.section("model");
  families::ModelDescription description =
      families::describe_model(checkpoints::read_timm_config(folder), models::families_of(job.registry.models));
  if (!model.is_default("name") && model.text("name") != description.name) {
    throw ConfigError(model.cite("name") + " is " + model.text("name") + ", but " + folder + " contains a model " +
                      description.name + "; remove model.name");
  }
  return description;
}

/// The model of the tensors of a file. With model.name, the user states the model.
families::ModelDescription identified_file(const std::string& path, const CommandJob& job,
                                           const config::Config& config) {
  if (checkpoints::kind_of(path) == checkpoints::FileKind::lockstep) {
    throw ConfigError(config.section("model").cite("from") + ": " + path +
                      " is a Lockstep checkpoint, which contains its own configuration; use --from, or init.from");
  }
  if (!is_default(config, "model.name")) return {.name = config.section("model").text("name")};
  const checkpoints::Archive archive = checkpoints::read_foreign(path, {.is_mapped = true});
  engine::NameRules rules{.renames = engine::renames_of(config.section("init")),
                          .library = config.section("init").text("family")};
  for (const families::FamilyRow& family : models::families_of(job.registry.models)) {
    if (!family.sizes_of) continue;
    rules.family = &family;
    for (const engine::StoredTensors& form : engine::tensor_forms(archive, rules)) {
      families::TensorShapes shapes;
      for (const auto& [name, tensor] : form) shapes.emplace(name, tensor.shape);
      if (const auto description = families::identify_model(family, shapes)) return *description;
    }
  }
  throw CheckpointError(path,
                        "the names and shapes of its tensors are not those of a ResNet, ViT, ConvNeXt or U-Net; set "
                        "model.name and the sizes of the model, and init.from instead of model.from")
      .as(CheckpointFault::incompatible);
}

bool reads_images(const CommandJob& job, const config::Config& config) {
  const std::string& name = config.section("data").text("name");
  const auto source = std::find_if(job.registry.sources.begin(), job.registry.sources.end(),
                                   [&name](const data::Source& row) { return row.name == name; });
  return source != job.registry.sources.end() &&
         std::any_of(source->keys.begin(), source->keys.end(),
                     [](const KeySpec& key) { return key.name == "data.val_transform"; });
}

/// Transforms of evaluation, and those of training without augmentation by color. Keys that are set win.
void add_transforms(const checkpoints::PretrainedImages& images, const std::string& path, const config::Config& config,
                    Settings& settings) {
  const std::string size = std::to_string(images.height);
  const bool has_augmentation = !config.section("data").text("augmentation").empty();
  if (is_default(config, "data.val_transform")) {
    for (const std::string& line : checkpoints::evaluation_lines(images, path)) {
      settings.emplace_back("data.val_transform", line);
    }
    if (is_default(config, "data.transform") && !has_augmentation) {
      settings.emplace_back("data.transform", "random_resized_crop,size=" + size + ",filter=" + images.interpolation);
      settings.emplace_back("data.transform", "horizontal_flip");
      settings.emplace_back("data.transform", checkpoints::normalize_line(images));
    }
    settings.emplace_back("data.image_size", size);
  }
  const bool adapts = config.section("init").boolean("adapt_channels");
  if (!adapts && (images.channels == 1 || images.channels == 3)) {
    settings.emplace_back("data.channels", std::to_string(images.channels));
  }
}

struct Expansion {
  Settings settings;
  std::string normalize;
};

Expansion expansion_of(const std::string& from, const CommandJob& job, const config::Config& config) {
  const bool is_folder = fs::is_directory(from) || !fs::exists(from);
  const families::ModelDescription model =
      is_folder ? described_folder(from, job, config) : identified_file(from, job, config);
  Expansion expansion;
  expansion.settings.emplace_back("model.name", model.name);
  for (const auto& [key, value] : model.keys) expansion.settings.emplace_back("model." + key, value);
  expansion.settings.emplace_back("init.from", from);
  const Section& data = config.section("data");
  if (!is_folder && data.has("unlabeled") && data.boolean("unlabeled") && model.classes > 0) {
    expansion.settings.emplace_back("data.classes", std::to_string(model.classes));
  }
  if (model.images && reads_images(job, config)) {
    add_transforms(*model.images, (fs::path(from) / checkpoints::kConfigFile).string(), config, expansion.settings);
    expansion.normalize = checkpoints::normalize_line(*model.images);
  }
  return expansion;
}

bool is_default(const KeyValue& value) {
  return value.texts.empty() || value.texts.front() == value.spec.default_value;
}

/// "resnet18,width=32", as distill.model accepts it.
std::string model_text(const Section& model) {
  std::string text = model.text("name");
  for (const auto& [key, value] : model.values()) {
    if (key == "name" || key == "recompute" || is_default(value)) continue;
    const std::string option = key + "=" + value.texts.front();
    if (entry_parts(option).size() > 1) {
      throw ConfigError("distill.from: the value '" + value.texts.front() + "' of " + model.full_name(key) +
                        " of the teacher contains a comma and '='; set distill.model");
    }
    text += "," + option;
  }
  return text;
}

/// Whether data.val_transform is empty, but data.transform is not.
bool derives_val_transform(const config::Config& config) {
  const Section& data = config.section("data");
  return data.has("val_transform") && data.texts("val_transform").empty() && !data.texts("transform").empty();
}

bool is_run(const std::string& from) {
  if (!std::filesystem::exists(from)) throw CheckpointError(from, "does not exist");
  return std::filesystem::is_directory(from) || checkpoints::kind_of(from) == checkpoints::FileKind::lockstep;
}

}  // namespace

void expand_augmentation(config::Config& config, const std::string& normalize) {
  const Section& data = config.section("data");
  const std::string name = data.has("augmentation") ? data.text("augmentation") : "";
  if (name.empty()) return;
  const data::ExpandedPreset preset = data::expand_preset(name, static_cast<int>(data.integer("image_size")));
  const std::vector<std::pair<std::string, std::vector<std::string>>> values = {
      {"data.transform", preset.train}, {"data.val_transform", preset.val}, {"train.mix", preset.mix}};
  for (const auto& [key, texts] : values) {
    if (!is_default(config, key)) continue;
    for (const std::string& text : texts) {
      const bool is_replaced = text == "normalize" && !normalize.empty();
      config.set(key, is_replaced ? normalize : text, "data.augmentation = " + name);
    }
  }
}

void derive_val_transform(config::Config& config, const std::vector<data::TransformRow>& rows) {
  if (!derives_val_transform(config)) return;
  const Section& data = config.section("data");
  const std::string origin = data.cite("transform");
  for (const std::string& line : data::evaluation_lines(data.texts("transform"), rows, origin)) {
    config.set("data.val_transform", line, "derived from " + origin);
  }
}

void keep_former_val_transform(config::Config& config, const std::vector<data::TransformRow>& rows,
                               const std::string& checkpoint) {
  if (!derives_val_transform(config)) return;
  const Section& data = config.section("data");
  if (!data.origin("transform").starts_with(checkpoint)) return;
  std::vector<std::string> conversions;
  for (const std::string& line : data.texts("transform")) {
    const data::TransformRow& row = find_row(rows, entry_parts(line).front(), data.cite("transform"));
    if (row.stage == data::TransformStage::tensor && !row.is_random) conversions.push_back(line);
  }
  if (conversions.empty()) conversions.emplace_back("to_float");
  for (const std::string& line : conversions) config.set("data.val_transform", line, checkpoint);
}

std::string expand_model_from(const CommandJob& job, config::Config& config) {
  const std::string from = config.section("model").text("from");
  if (from.empty()) return "";
  const nlohmann::json agreed = nlohmann::json::parse(engine::text_of_root(job.world, [&] {
    const Expansion expansion = expansion_of(from, job, config);
    const auto replace = nlohmann::json::error_handler_t::replace;
    return nlohmann::json({expansion.settings, expansion.normalize}).dump(-1, ' ', false, replace);
  }));
  job.world.all_or_throw([&] {
    const std::string origin = "model.from = " + from;
    for (const auto& [key, value] : agreed[0].get<Settings>()) {
      const std::string& set_by = config.section(config::section_of(key)).origin(config::key_of(key));
      if (set_by == "default" || set_by == origin) config.set(key, value, origin);
    }
  });
  return agreed[1].get<std::string>();
}

void settle_teacher(const CommandJob& job, config::Config& config) {
  const std::string from = config.section("distill").text("from");
  const bool has_configuration =
      engine::agreed(job.world, [&] { return engine::has_teacher(config.sections()) && is_run(from); });
  if (!job.world.agree(has_configuration)) return;
  const engine::StoredConfig stored = engine::stored_config(job.world, from);
  job.world.all_or_throw([&] {
    config.set("distill.from", stored.checkpoint, std::string(config.value("distill.from").origin));
    if (!config.section("distill").is_default("model")) return;
    config::Config of_run(job.keys);
    of_run.read_ini(stored.config_ini, stored.checkpoint, config::OldNames::translated);
    config.set("distill.model", model_text(of_run.section("model")), stored.checkpoint);
  });
}

}  // namespace lockstep::trainer
