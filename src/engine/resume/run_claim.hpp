// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::engine {

/// Requires that the checkpoints of a folder belong to one run. Not collective: for rank 0.
/// @param chosen   the checkpoint that the run resumes from, there or elsewhere
/// @param is_fork  checkpoints of other runs are renamed instead of being refused
/// @return  the id with which the run continues: that of `chosen`, or "" if the folder has no checkpoint of that run
/// @throws CheckpointError  the folder has checkpoints of another run
std::string claim(const std::string& directory, const std::string& chosen, bool is_fork);

}  // namespace lockstep::engine
