// SPDX-License-Identifier: BSD-3-Clause
// Sums over samples that reports of fields show.
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/metrics/meter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::metrics {

/// Values on a grid of 1 or 2 axes, row-major. NaN: a gap.
struct Grid {
  std::size_t rows = 1;
  std::size_t columns = 0;
  std::vector<double> values = {};
};

/// The smallest number of points along each axis that a cell must have, so that there are at most `longest` cells along
/// the longest axis, and at most `cells` in all.
std::size_t cell_size(const Grid& grid, std::size_t longest, std::size_t cells);

/// The means over cells of `size` points along each axis; gaps do not count. Cells at the end can be smaller.
Grid reduced(const Grid& grid, std::size_t size);

/// Mean error and root mean square error at each cell of a grid, over samples. Nothing is rounded before the results,
/// so that they do not depend on the order of the samples. A cell takes 1.1 kB.
class ErrorMap {
 public:
  /// @param size  points of a cell along each axis
  explicit ErrorMap(std::size_t size = 1) : size_(size) {}

  /// @param errors  prediction - target; gaps do not count. All grids have the same sizes
  void add(const Grid& errors);
  /// The sums as integers, which add up over ranks.
  /// @param cells  number of cells
  std::vector<std::int64_t> words(std::size_t cells) const;
  void set_words(std::span<const std::int64_t> words);

  std::vector<double> bias() const;  ///< one for each cell; NaN of nothing
  std::vector<double> rmse() const;

 private:
  struct Cell {
    std::int64_t count = 0;
    ExactSum errors = {};
    ExactSum squares = {};
  };
  static constexpr std::size_t kCellWords = 1 + 2 * ExactSum::kWords;

  std::size_t size_;
  std::vector<Cell> cells_;
};

/// The power of each whole wave number k of a field: the sum of the squares of the Fourier coefficients of waves, the
/// number of which along the longest axis is k when rounded. With all waves, it would add up to the mean square of the
/// values. Points have the same distance along all axes.
/// @param field  [space...] float64 on the CPU
/// @return       k = 0, ..., half of the longest size
std::vector<double> radial_power(const Tensor& field);

}  // namespace lockstep::metrics
