// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/stored_task.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <utility>

#include "core/text/text.hpp"
#include "models/losses/task_table.hpp"

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

}  // namespace

std::string task_json(const Task& task) {
  Json json = {{"kind", models::row_of(task.kind).name},
               {"classes", task.classes},
               {"class_names", utf8_texts(task.class_names)},
               {"sample_shape", task.sample_shape}};
  if (!task.class_ids.empty()) json["class_ids"] = utf8_texts(task.class_ids);
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
  return task;
}

}  // namespace lockstep::engine
