// SPDX-License-Identifier: BSD-3-Clause
// Sums over parameters that do not depend on who owns what: pieces are summed whole, and then by one fixed tree.
#pragma once

#include <lockstep/optim/flat_parameters.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::optim {

/// Sums neighbors, then neighboring sums, and so on. Leaves `values` changed.
inline double sum_by_tree(std::span<double> values) {
  for (std::size_t width = 1; width < values.size(); width *= 2) {
    for (std::size_t i = 0; i + width < values.size(); i += 2 * width) values[i] += values[i + width];
  }
  return values.empty() ? 0 : values[0];
}

/// A place for every piece of every parameter.
class PieceNumbers {
 public:
  explicit PieceNumbers(std::span<const FlatBlock> blocks) {
    for (const FlatBlock& block : blocks) {
      auto& first = first_.emplace_back();
      for (const Segment& segment : block.segments) {
        first.push_back(count_);
        count_ += static_cast<std::size_t>((segment.count + kPieceElements - 1) / kPieceElements);
      }
      first.push_back(count_);
    }
  }

  std::size_t count() const noexcept { return count_; }
  std::size_t place_of(const GradientPiece& piece) const {
    return first_[piece.block][piece.segment] + static_cast<std::size_t>(piece.begin / kPieceElements);
  }
  /// The part of `values`, one for each piece, those of one segment.
  std::span<double> part(std::span<double> values, std::size_t block, std::size_t segment) const {
    const std::size_t first = first_[block][segment];
    return values.subspan(first, first_[block][segment + 1] - first);
  }

 private:
  std::vector<std::vector<std::size_t>> first_;  // [block][segment], and one more that ends the last
  std::size_t count_ = 0;
};

}  // namespace lockstep::optim
