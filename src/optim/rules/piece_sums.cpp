// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/piece_sums.hpp"

namespace lockstep::optim {

double sum_by_tree(std::span<double> values) {
  for (std::size_t width = 1; width < values.size(); width *= 2) {
    for (std::size_t i = 0; i + width < values.size(); i += 2 * width) values[i] += values[i + width];
  }
  return values.empty() ? 0 : values[0];
}

PieceNumbers::PieceNumbers(std::span<const FlatBlock> blocks) {
  for (const FlatBlock& block : blocks) {
    auto& first = first_.emplace_back();
    for (const Segment& segment : block.segments) {
      first.push_back(count_);
      count_ += static_cast<std::size_t>((segment.count + kPieceElements - 1) / kPieceElements);
    }
    first.push_back(count_);
  }
}

}  // namespace lockstep::optim
