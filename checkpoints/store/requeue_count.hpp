// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::checkpoints {

/// How often in a row a run has started from the same step: a file STARTS next to its checkpoints, lines `step` and
/// `count`. A run that dies before it saves is started from there again, and would be forever.
struct RequeueCount {
  std::int64_t step = 0;
  std::int64_t count = 0;  ///< 0 = nothing is known
};

/// A file that cannot be understood counts as none.
RequeueCount read_requeue_count(const std::string& directory);

/// Notes one more start from `step`, or the first one where the last was from another step. Durable when it returns.
/// @param is_first  forgets those before, because the user has started the run again
/// @return  how many there are in a row now, this one included
/// @throws CheckpointError  the file cannot be written
std::int64_t note_start(const std::string& directory, std::int64_t step, bool is_first);

}  // namespace lockstep::checkpoints
