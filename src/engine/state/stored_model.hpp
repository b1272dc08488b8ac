// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>

#include <optional>
#include <string>

// The trained model in a checkpoint: its task, which predictions need without the data of the run, and the choice
// between its weights and the average of past ones that section `ema` requests.
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

/// A key with which `trainer eval`, evaluations of a run, or init.from choose: auto (the average where there is one),
/// trained or average.
/// @param help  what is chosen for
KeySpec weights_key(const std::string& name, const std::string& help);

/// Whether a key of that kind, of the value `wanted`, takes the average that the checkpoint holds.
/// @throws ConfigError  the average is requested, but does not exist
bool takes_average(const checkpoints::Archive& checkpoint, const std::string& wanted, const std::string& cited_as);

/// The types of averaged weights: as they are stored, which is float32 for 16-bit parameters, or rounded to the types
/// of the trained model.
enum class AverageType { stored, of_trained };

/// The checkpoint with one model alone: the averaged one in the trained one's place, or that without the average.
checkpoints::Archive with_model(const checkpoints::Archive& checkpoint, bool is_average,
                                AverageType type = AverageType::stored);

}  // namespace lockstep::engine
