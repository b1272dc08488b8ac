// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint says about its model, for other libraries.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/interop/public_model.hpp"
#include "ckpt/reading/documents.hpp"
#include "ckpt/reading/source.hpp"

namespace lockstep::ckpt {

/// The task that the run wrote.
struct StoredTask {
  std::vector<std::int64_t> sample_shape = {};  ///< empty in checkpoints of earlier versions
  std::vector<std::string> class_names = {};
};

/// @throws CheckpointError  the description is malformed
StoredTask task_of(const InspectedFile& source);

/// The configuration of the run.
/// @throws Failure  it is missing
Entries config_of(const InspectedFile& source);

/// @throws Failure  it is neither "timm" nor "torchvision"
void require_library(const std::string& library);

/// The model of a library with the arrays of a group.
/// @param library  as require_library accepts it
/// @param group    "/model" or "/ema"
/// @throws CheckpointError  the library lacks this model
checkpoints::PublicModel public_model_of(const InspectedFile& source, const std::string& library,
                                         const std::string& group);

/// The arrays of a model, its parameters first, with their names.
struct ModelArray {
  std::string name;
  const FileArray* info;
};
std::vector<ModelArray> model_arrays(const InspectedFile& source, const std::string& group);

/// @throws Failure  the source is a file of another program
void require_own(const InspectedFile& source, const std::string& option);

}  // namespace lockstep::ckpt
