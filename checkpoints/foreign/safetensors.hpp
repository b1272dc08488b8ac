// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <string>
#include <vector>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/foreign/source.hpp"

/// safetensors: 8 bytes of header length, a JSON object with type, shape and place of every tensor, then their bytes.
namespace lockstep::checkpoints {

/// Reads a file after checking its header: names occur once, ranges fit shape and type, start at 0, touch and fill the
/// file.
Archive read_safetensors(const ByteSource& source);

void write_safetensors(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata);

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
