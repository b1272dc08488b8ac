// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/ranking.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::trainer {

std::vector<std::int64_t> top_indices(std::span<const double> values, std::int64_t k) {
  std::vector<std::int64_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  const auto middle = indices.begin() + std::min<std::int64_t>(k, std::ssize(values));
  std::partial_sort(indices.begin(), middle, indices.end(), [&values](std::int64_t a, std::int64_t b) {
    const double at_a = values[static_cast<std::size_t>(a)];
    const double at_b = values[static_cast<std::size_t>(b)];
    return at_a != at_b ? at_a > at_b : a < b;
  });
  indices.erase(middle, indices.end());
  return indices;
}

}  // namespace lockstep::trainer
