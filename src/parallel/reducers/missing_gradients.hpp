// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::parallel {

struct GraphPromises {
  bool has_static_graph = false;
  bool finds_unused = false;
};

/// Says which parameters got no gradient on which ranks: "'a' (index 0) on ranks 0, 2; 'b' (index 4) on rank 1".
/// @param missing_by_rank  of every rank, one line "index name" for each parameter
std::string describe_missing(const std::vector<std::string>& missing_by_rank);

/// The remedy, by what the user promised of the graph.
std::string remedy_of_missing(const GraphPromises& promises);

}  // namespace lockstep::parallel
