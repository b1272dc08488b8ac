// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/static_graph.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lockstep::parallel {

void StaticGraph::begin_step() {
  for (Uses& uses : uses_) uses.in_step = 0;
}

void StaticGraph::forget() { std::fill(uses_.begin(), uses_.end(), Uses{}); }

void StaticGraph::learn_use(std::size_t parameter) {
  ++uses_[parameter].per_step;
  uses_[parameter].last = ++count_;
}

std::vector<std::size_t> StaticGraph::order_of_last_use() const {
  std::vector<std::size_t> order(uses_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto position = [this](std::size_t i) {
    return is_unused(i) ? std::numeric_limits<int>::max() : uses_[i].last;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&position](std::size_t a, std::size_t b) { return position(a) < position(b); });
  return order;
}

StaticGraph::Use StaticGraph::count_use(std::size_t parameter) {
  Uses& uses = uses_[parameter];
  ++uses.in_step;
  if (uses.in_step > uses.per_step) return Use::beyond;
  return uses.in_step == uses.per_step ? Use::last : Use::earlier;
}

}  // namespace lockstep::parallel
