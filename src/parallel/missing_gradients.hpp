// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::parallel {

/// Says which parameters got no gradient on which ranks: "'a' (index 0) on ranks 0, 2; 'b' (index 4) on rank 1".
/// @param missing_by_rank  of every rank, one line "index name" for each parameter
std::string describe_missing(const std::vector<std::string>& missing_by_rank);

}  // namespace lockstep::parallel
