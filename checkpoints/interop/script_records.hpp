// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "checkpoints/foreign/source.hpp"

namespace lockstep::checkpoints {

/// Checks the records of a zip archive before LibTorch loads it as a TorchScript module.
/// @return  the reason for which it is not a TorchScript archive, after the words "the file"; empty = it is one, and
///          each record agrees with its CRC-32
/// @throws CheckpointError  it is not a whole zip archive, or a record is damaged
std::string fault_of_script(const ByteSource& source);

}  // namespace lockstep::checkpoints
