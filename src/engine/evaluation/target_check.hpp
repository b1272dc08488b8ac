// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>

#include <functional>
#include <optional>

#include "models/losses/task_table.hpp"

namespace lockstep::engine {

/// The first sample of a batch with an integer target that is no class of the range; none = all are valid, or the batch
/// has no such targets in the memory of the host.
std::optional<data::SampleFault> fault_of_targets(const batch::Batch& batch, const models::ClassRange& range);

/// LoaderOptions::check that refuses targets that are no classes where the losses of the model need classes. On a GPU
/// they would end the process by an assertion that names no sample.
/// @param task  of the data
/// @return      empty = targets need no check
std::function<std::optional<data::SampleFault>(const batch::Batch&)> target_check(const models::Model& model,
                                                                                  const Task& task);

}  // namespace lockstep::engine
