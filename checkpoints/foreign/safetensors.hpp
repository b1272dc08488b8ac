// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/foreign/source.hpp"

/// safetensors: 8 bytes of header length, a JSON object with type, shape and place of every tensor, then their bytes.
namespace lockstep::checkpoints {

/// Reads a file after checking its header: names occur once, ranges fit shape and type, start at 0, touch and fill the
/// file.
Archive read_safetensors(const ByteSource& source);

/// The header, with the length in front, for `arrays` in the order of safetensors_order.
/// @throws CheckpointError  without a path
std::string safetensors_header(const std::vector<NamedArray>& arrays,
                               const std::map<std::string, std::string>& metadata);

void write_safetensors(NewFile& file, const std::vector<NamedArray>& arrays,
                       const std::map<std::string, std::string>& metadata);

}  // namespace lockstep::checkpoints
