// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/field_maps.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "metrics/numbers/fourier.hpp"
#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

std::size_t cells_along(std::size_t points, std::size_t size) { return (points + size - 1) / size; }

/// The cell of each point.
template <class Visit>
void for_each_point_of_cells(const Grid& grid, std::size_t size, const Visit& visit) {
  const std::size_t columns = cells_along(grid.columns, size);
  for (std::size_t row = 0; row < grid.rows; ++row) {
    for (std::size_t column = 0; column < grid.columns; ++column) {
      const double value = grid.values[row * grid.columns + column];
      if (!std::isnan(value)) visit(row / size * columns + column / size, value);
    }
  }
}

}  // namespace

std::size_t cell_size(const Grid& grid, std::size_t longest, std::size_t cells) {
  std::size_t size = 1;
  const auto fits = [&] {
    const std::size_t rows = cells_along(grid.rows, size);
    const std::size_t columns = cells_along(grid.columns, size);
    return std::max(rows, columns) <= longest && rows * columns <= cells;
  };
  while (!fits()) ++size;
  return size;
}

Grid reduced(const Grid& grid, std::size_t size) {
  Grid result{.rows = cells_along(grid.rows, size), .columns = cells_along(grid.columns, size)};
  result.values.resize(result.rows * result.columns);
  std::vector<std::size_t> counts(result.values.size());
  for_each_point_of_cells(grid, size, [&](std::size_t cell, double value) {
    result.values[cell] += value;
    ++counts[cell];
  });
  for (std::size_t i = 0; i < counts.size(); ++i) {
    result.values[i] = counts[i] == 0 ? kNan : result.values[i] / static_cast<double>(counts[i]);
  }
  return result;
}

void ErrorMap::add(const Grid& errors) {
  const std::size_t cells = cells_along(errors.rows, size_) * cells_along(errors.columns, size_);
  if (cells_.empty()) cells_.resize(cells);
  struct CellOfSample {
    std::int64_t count = 0;
    double errors = 0;
    double squares = 0;
  };
  std::vector<CellOfSample> sample(cells);
  for_each_point_of_cells(errors, size_, [&](std::size_t cell, double value) {
    ++sample[cell].count;
    sample[cell].errors += value;
    sample[cell].squares += value * value;
  });
  for (std::size_t i = 0; i < cells; ++i) {
    if (sample[i].count == 0) continue;
    cells_[i].count += sample[i].count;
    cells_[i].errors.add(sample[i].errors);
    cells_[i].squares.add(sample[i].squares);
  }
}

std::vector<std::int64_t> ErrorMap::words(std::size_t cells) const {
  std::vector<std::int64_t> words(cells * kCellWords);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const std::span<std::int64_t> of_cell = std::span(words).subspan(i * kCellWords, kCellWords);
    of_cell[0] = cells_[i].count;
    cells_[i].errors.store(of_cell.subspan(1, ExactSum::kWords));
    cells_[i].squares.store(of_cell.last(ExactSum::kWords));
  }
  return words;
}

void ErrorMap::set_words(std::span<const std::int64_t> words) {
  cells_.clear();
  for (; !words.empty(); words = words.subspan(kCellWords)) {
    cells_.push_back({.count = words[0],
                      .errors = ExactSum(words.subspan(1, ExactSum::kWords)),
                      .squares = ExactSum(words.subspan(1 + ExactSum::kWords, ExactSum::kWords))});
  }
}

std::vector<double> ErrorMap::bias() const {
  std::vector<double> values;
  for (const Cell& cell : cells_) {
    values.push_back(cell.count == 0 ? kNan : cell.errors.value() / static_cast<double>(cell.count));
  }
  return values;
}

std::vector<double> ErrorMap::rmse() const {
  std::vector<double> values;
  for (const Cell& cell : cells_) {
    values.push_back(cell.count == 0 ? kNan : std::sqrt(cell.squares.value() / static_cast<double>(cell.count)));
  }
  return values;
}

std::vector<double> radial_power(const Tensor& field) {
  const std::vector<std::int64_t> sizes = field.sizes().vec();
  const std::int64_t longest = *std::ranges::max_element(sizes);
  std::vector<double> power(static_cast<std::size_t>(longest / 2 + 1));
  const at::Tensor transform = at::fft_fftn(field, std::nullopt, std::nullopt, "forward").contiguous();
  const auto* const waves = transform.const_data_ptr<c10::complex<double>>();
  for (std::int64_t i = 0; i < transform.numel(); ++i) {
    double squared = 0;  // waves along the longest axis
    std::int64_t rest = i;
    for (std::size_t axis = sizes.size(); axis-- > 0; rest /= sizes[axis]) {
      const double wave =
          wave_number(static_cast<std::size_t>(rest % sizes[axis]), static_cast<std::size_t>(sizes[axis]));
      const double scaled = wave * static_cast<double>(longest) / static_cast<double>(sizes[axis]);
      squared += scaled * scaled;
    }
    const auto bin = static_cast<std::size_t>(std::lround(std::sqrt(squared)));
    if (bin < power.size()) power[bin] += std::norm(std::complex<double>(waves[i].real(), waves[i].imag()));
  }
  return power;
}

}  // namespace lockstep::metrics
