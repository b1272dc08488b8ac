// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/stored_model.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>

#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <array>

#include "core/text/text.hpp"
#include "engine/state/paths.hpp"
#include "models/losses/task_table.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kKinds = {TaskKind::classification, TaskKind::multilabel, TaskKind::regression,
                               TaskKind::segmentation,   TaskKind::language,   TaskKind::custom};

std::optional<TaskKind> kind_named(const std::string& name) {
  for (const TaskKind kind : kKinds) {
    if (models::row_of(kind).name == name) return kind;
  }
  return std::nullopt;
}

std::vector<std::string> utf8_texts(std::vector<std::string> texts) {
  for (std::string& text : texts) text = utf8_text(text);
  return texts;
}

/// The facts that a model needs about the targets of its training.
Json fields_json(const FieldTask& fields) {
  return {{"channels", utf8_texts(fields.channels)},
          {"units", utf8_texts(fields.units)},
          {"is_normalized", !fields.scaling.target_shift.empty()},
          {"steps", fields.scaling.target_steps},
          {"fed_back", fields.scaling.fed_back},
          {"adds_newest", fields.scaling.adds_newest},
          {"adds_steps", fields.scaling.adds_steps}};
}

FieldTask fields_from(const Json& json) {
  FieldTask fields{.channels = json.at("channels").get<std::vector<std::string>>(),
                   .units = json.at("units").get<std::vector<std::string>>()};
  fields.scaling = {.target_steps = json.at("steps").get<std::int64_t>(),
                    .fed_back = json.at("fed_back").get<std::vector<std::int64_t>>(),
                    .adds_newest = json.at("adds_newest").get<bool>(),
                    .adds_steps = json.at("adds_steps").get<bool>()};
  if (json.at("is_normalized").get<bool>()) {  // the numbers are buffers of the model
    fields.scaling.target_shift.assign(fields.channels.size(), 0);
    fields.scaling.target_scale.assign(fields.channels.size(), 1);
  }
  return fields;
}

checkpoints::Array in_type(const checkpoints::Array& array, DType dtype) {
  if (array.dtype == dtype) return array;
  return array_of(tensor_over(array).to(parallel::scalar_type_of(dtype)), "an average");
}

}  // namespace

std::string task_json(const Task& task) {
  Json json = {{"kind", models::row_of(task.kind).name},
               {"classes", task.classes},
               {"class_names", utf8_texts(task.class_names)},
               {"sample_shape", task.sample_shape}};
  if (!task.class_ids.empty()) json["class_ids"] = utf8_texts(task.class_ids);
  if (!task.fields.channels.empty()) json["fields"] = fields_json(task.fields);
  return json.dump();
}

std::optional<Task> stored_task(const checkpoints::Archive& archive) {
  if (!archive.has(kStoredTask)) return std::nullopt;
  const auto refuse = [&archive]() -> CheckpointError {
    return {archive.origin(), kStoredTask, "the description of the task is malformed"};
  };
  try {
    const Json json = Json::parse(checkpoints::text_of(archive.array(kStoredTask)));
    const auto kind = kind_named(json.at("kind").get<std::string>());
    if (!kind) throw refuse();
    Task task{.sample_shape = json.at("sample_shape").get<std::vector<std::int64_t>>(),
              .classes = json.at("classes").get<std::int64_t>(),
              .kind = *kind,
              .class_names = json.at("class_names").get<std::vector<std::string>>(),
              .class_ids = json.value("class_ids", std::vector<std::string>())};
    const auto fits = [&task](const std::vector<std::string>& names) {
      return names.empty() || std::ssize(names) == task.classes;
    };
    if (json.contains("fields")) task.fields = fields_from(json.at("fields"));
    if (task.classes < 0 || !fits(task.class_names) || !fits(task.class_ids)) throw refuse();
    return task;
  } catch (const nlohmann::json::exception&) {
    throw refuse();
  }
}

Task model_task(const Task& of_data, const std::optional<Task>& stored) {
  if (!stored) return of_data;
  Task task = of_data;
  task.kind = stored->kind;
  task.classes = stored->classes;
  task.class_names = stored->class_names;
  task.class_ids = stored->class_ids;
  if (of_data.fields.channels.empty() && !stored->fields.channels.empty()) {  // data without targets
    task.fields.channels = stored->fields.channels;
    task.fields.units = stored->fields.units;
    task.fields.scaling.target_shift = stored->fields.scaling.target_shift;
    task.fields.scaling.target_scale = stored->fields.scaling.target_scale;
    task.fields.scaling.target_steps = stored->fields.scaling.target_steps;
    task.fields.scaling.fed_back = stored->fields.scaling.fed_back;
    task.fields.scaling.adds_newest = stored->fields.scaling.adds_newest;
    task.fields.scaling.adds_steps = stored->fields.scaling.adds_steps;
  }
  return task;
}

KeySpec weights_key(const std::string& name, const std::string& help) {
  return keys::choice(name, "auto", help + "; auto: the average of section ema where there is one",
                      {"auto", "trained", "average"});
}

bool takes_average(const checkpoints::Archive& checkpoint, const std::string& wanted, const std::string& cited_as) {
  const bool is_there = !checkpoint.arrays_in(kAverageParameters).empty();
  if (wanted == "average" && !is_there) {
    throw ConfigError(cited_as + ": " + checkpoint.origin() + " contains no average of the weights; see ema.kind");
  }
  return is_there && wanted != "trained";
}

checkpoints::Archive with_model(const checkpoints::Archive& checkpoint, bool is_average, AverageType type) {
  const std::string& chosen = is_average ? kAverage : kModel;
  const std::string& other = is_average ? kModel : kAverage;
  checkpoints::Archive result;
  result.set_origin(checkpoint.origin());
  for (const auto& [name, value] : checkpoint.attributes_of("/")) result.set("/", name, value);
  for (const std::string& array_path : checkpoint.array_paths()) {
    if (array_path.starts_with(other + "/")) continue;
    const bool is_of_model = array_path.starts_with(chosen + "/");
    // Arrays instead of links: they may lead to what is left out here.
    const std::string path = is_of_model ? kModel + array_path.substr(chosen.size()) : array_path;
    const bool converts = is_of_model && is_average && type == AverageType::of_trained && checkpoint.has(path);
    result.put(path, converts ? in_type(checkpoint.array(array_path), checkpoint.array(path).dtype)
                              : checkpoint.array(array_path));
  }
  return result;
}

}  // namespace lockstep::engine
