// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "checkpoints/format/index.hpp"

namespace lockstep::checkpoints {

/// Calls `work(first, last)` for shares of [0, pieces.size()) of about as many bytes, one for each thread, and waits
/// for all. Few bytes are one share, on the calling thread.
/// @throws  what the share that failed first in the order of the pieces threw
void for_each_parallel_piece(const std::vector<Piece>& pieces, int threads,
                             const std::function<void(std::size_t first, std::size_t last)>& work);

}  // namespace lockstep::checkpoints
