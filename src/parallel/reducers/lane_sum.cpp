// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/lane_sum.hpp"

#include <cstddef>
#include <vector>

namespace lockstep::parallel {

double sum_by_lanes(std::span<const double> values) {
  struct LaneNode {
    double sum;
    std::size_t lanes;
  };
  std::vector<LaneNode> stack;
  for (const double value : values) {
    stack.push_back({value, 1});
    while (stack.size() > 1 && stack[stack.size() - 2].lanes == stack.back().lanes) {
      const LaneNode upper = stack.back();
      stack.pop_back();
      stack.back() = {stack.back().sum + upper.sum, 2 * upper.lanes};
    }
  }
  double sum = 0;
  for (std::size_t i = stack.size(); i > 0; --i) sum = i == stack.size() ? stack[i - 1].sum : stack[i - 1].sum + sum;
  return sum;
}

}  // namespace lockstep::parallel
