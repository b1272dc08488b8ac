// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accumulator_hooks.hpp"

namespace lockstep::parallel {

/// Which of `nodes` the graph behind `roots` reaches: 1 or 0 for each. Any depth of graph.
std::vector<char> reachable_nodes(const std::vector<at::Tensor>& roots, const std::vector<NodeHandle>& nodes);

}  // namespace lockstep::parallel
