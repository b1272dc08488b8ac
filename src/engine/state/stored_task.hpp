// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/task.hpp>

#include <optional>
#include <string>

// The task of a trained model, which predictions need without the data of the run.
namespace lockstep::engine {

/// The text in a checkpoint: {"kind": "classification", "classes": 2, "class_names": ["cat", "dog"],
/// "sample_shape": [3, 32, 32]}, and "class_ids" where the data have other names of the classes.
inline const char* const kStoredTask = "/meta/task_json";

/// Bytes of class names that are not UTF-8 become "\xE9", for example.
std::string task_json(const Task& task);

/// The task in a checkpoint, or none in checkpoints of earlier versions.
/// @throws CheckpointError  the text is malformed
std::optional<Task> stored_task(const checkpoints::Archive& archive);

/// The task of a model for other data: kind and classes of the trained one, shapes of the data.
Task model_task(const Task& of_data, const std::optional<Task>& stored);

}  // namespace lockstep::engine
