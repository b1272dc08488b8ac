// SPDX-License-Identifier: BSD-3-Clause
// What the forms of `ckpt convert` share.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "ckpt/reading/failure.hpp"
#include "ckpt/reading/listing.hpp"
#include "ckpt/reading/options.hpp"

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

/// A document of a checkpoint, such as "/meta/config_ini"; "" if there is none.
std::string document_of(const InspectedFile& source, const std::string& path);

/// convert --as timm|torchvision: files that those libraries load strictly.
Exit convert_public(const Request& request);
/// convert --only optimizer: the state as torch.optim has it.
Exit convert_optimizer(const Request& request);

}  // namespace lockstep::ckpt
