// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::checkpoints {

/// Which arrays below `group` hold NaN or infinity, "" when none does:
/// "/model/params/w holds 2 NaN and 1 infinite elements, the first at [0, 3]". Goes by the index; only an array that is
/// named is read.
/// @param path  a checkpoint's folder or a state file
/// @throws CheckpointError  as read_checkpoint_index()
std::string nonfinite_in(const std::string& path, const std::string& group);

}  // namespace lockstep::checkpoints
