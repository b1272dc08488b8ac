// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint says about its model, for other libraries.
#pragma once

#include <string>
#include <vector>

#include "ckpt/reading/documents.hpp"
#include "ckpt/reading/options.hpp"
#include "ckpt/reading/source.hpp"
#include "families/public_model.hpp"

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

/// The model of the library of --as with the arrays of a group.
/// @param group  "/model" or "/ema"
/// @throws Failure          no family names this library
/// @throws CheckpointError  the library lacks this model
families::PublicModel public_model_of(const InspectedFile& source, const Request& request, const std::string& group);
/// The library of --as.
/// @throws Failure  no family names this library
std::string library_of(const Request& request);

/// The arrays of a model, its parameters first, with their names.
struct ModelArray {
  std::string name;
  const FileArray* info;
};
std::vector<ModelArray> model_arrays(const InspectedFile& source, const std::string& group);

/// @throws Failure  the source is a file of another program
void require_own(const InspectedFile& source, const std::string& option);

}  // namespace lockstep::ckpt
