// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <string>
#include <vector>

#include "checkpoints/foreign/source.hpp"

/// A model in several safetensors files: a JSON file, "model.safetensors.index.json", whose "weight_map" says which
/// tensor is in which file next to it.
namespace lockstep::checkpoints {

/// Whether the file is JSON with a weight_map among its first bytes.
bool is_safetensors_index(const ByteSource& source);

/// Paths of the files that the index lists, each once, by name.
/// @throws CheckpointError  the index is malformed, or names a file in another folder
std::vector<std::string> files_of_index(const ByteSource& source);

/// Reads all files as one archive.
/// @param is_mapped  as DiskSource
/// @throws CheckpointError  likewise; a file or tensor is missing, or a tensor is in no or in another entry of the
/// index
Archive read_safetensors_index(const ByteSource& source, bool is_mapped = false);

}  // namespace lockstep::checkpoints
