// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

namespace lockstep::trainer {

/// Exchanges a first message with other ranks: rank 0 with all, another rank with rank 0 and its neighbors. To be
/// called after MPI_Init, before communicators are made: these would wait for ranks that cannot be reached. Collective
/// over MPI_COMM_WORLD.
/// @return  ranks that have not answered in `limit_s`. The messages to them are still under way: the caller ends the
/// job
std::vector<int> silent_ranks(double limit_s);

/// Ends the job with exit code 2, and prints the finding, if ranks do not answer. A later rank leaves the finding to
/// rank 0, if that misses an answer, too. Collective over MPI_COMM_WORLD.
void require_answers(bool is_json);

}  // namespace lockstep::trainer
