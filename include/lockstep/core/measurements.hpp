// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// What a run measures. Meters and hooks make these, and report writes and shows them. Names of tables, histograms and
// images are those of Record's values: "val/confusion".
namespace lockstep {

/// A number or a word.
using NamedValue = std::variant<double, std::int64_t, std::string>;

/// Values by name, in the order in which files show them.
using NamedValues = std::vector<std::pair<std::string, NamedValue>>;

/// The number that `value` holds; none for a word.
std::optional<double> number_in(const NamedValue& value);

/// What was measured at one step: one line of the metrics files. The step itself is the value "step".
struct Record {
  using Value = NamedValue;
  std::string kind = {};  ///< "train", "eval", ...
  NamedValues values = {};

  /// The number called `name`; none where there is no such number.
  std::optional<double> number(const std::string& name) const;
};

/// Numbers by class, or by class and class.
struct Table {
  std::string name = {};
  std::int64_t step = 0;
  std::size_t columns = 0;
  std::vector<double> values = {};  ///< row by row; NaN: undefined

  std::size_t rows() const { return columns == 0 ? 0 : values.size() / columns; }
};

/// Of all elements of an array: how many lie in each of equally wide buckets between the smallest and the largest.
struct Histogram {
  std::string name = {};
  std::int64_t step = 0;
  double min = 0;
  double max = 0;
  std::int64_t count = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> ends = {};          ///< of buckets, to the right; the last holds its end, too
  std::vector<std::int64_t> counts = {};  ///< one for each of them
};

/// @param values  finite; at least one
/// @param bins    >= 1
/// @throws std::invalid_argument  they are not
Histogram histogram_of(std::span<const float> values, std::size_t bins);

/// An image, such as a sample of the data set.
struct Image {
  std::string name = {};
  std::int64_t step = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels = {};  ///< [height, width, 3], red first, rows from the top
  std::string caption = {};
  bool is_wrong = false;  ///< whether the caption shows a wrong prediction
};

}  // namespace lockstep
