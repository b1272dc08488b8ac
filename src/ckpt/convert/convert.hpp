// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/source.hpp"
#include "families/public_model.hpp"

/// What the forms of `ckpt convert` share.
namespace lockstep::ckpt {

/// A path's name in a flat file: without `group`, with the characters that encode_name replaced.
std::string name_in(const std::string& path, const std::string& group);

/// Converts the real floating-point arrays to the type of --dtype, if it is given.
/// @throws Failure  another type, or a value is too large for it
void cast_arrays(std::vector<checkpoints::NamedArray>& arrays, const Request& request);

/// Reads back what was written. An .npz has no bfloat16; what it holds in its place is not compared.
/// @throws Failure  an array differs
void verify_written(const std::string& path, checkpoints::ExportKind kind,
                    const std::vector<checkpoints::NamedArray>& arrays);

/// convert --as timm|torchvision: files that those libraries load strictly.
Exit convert_public(const Request& request);
/// convert --only optimizer: the state as torch.optim has it.
Exit convert_optimizer(const Request& request);

// --- what a checkpoint says about its model, for other libraries ---

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
