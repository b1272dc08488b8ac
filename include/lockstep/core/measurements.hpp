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

// The measurements of a run: records, tables, histograms and images. Meters and hooks create them, module report writes
// them. Names of tables, histograms and images have the same form as those of Record's values: "val/confusion".
namespace lockstep {

/// A number or a text.
using NamedValue = std::variant<double, std::int64_t, std::string>;

/// Values by name, in the order of the files.
using NamedValues = std::vector<std::pair<std::string, NamedValue>>;

/// The number, or none if the value is a text.
std::optional<double> number_in(const NamedValue& value);

/// The measurements at one step: one line of the metrics files. The step itself is the value "step".
struct Record {
  std::string kind = {};  ///< "train", "eval", ...
  NamedValues values = {};
  /// Units of the values that have one, by their names.
  std::vector<std::pair<std::string, std::string>> units = {};

  /// The number named `name`, or none.
  std::optional<double> number(const std::string& name) const;
};

/// A table of numbers, for example one row per class, or a confusion matrix.
struct Table {
  std::string name = {};
  std::int64_t step = 0;
  std::size_t columns = 0;
  std::vector<double> values = {};      ///< row by row; NaN: undefined
  std::vector<std::string> names = {};  ///< names of the columns, such as those of the classes; empty = they have none
  /// Title of a chart in which the other columns are lines over the first one; empty = the table is shown as numbers.
  std::string title = {};

  std::size_t rows() const { return columns == 0 ? 0 : values.size() / columns; }
};

/// A histogram of the elements of an array, with bins of equal width from the minimum to the maximum.
struct Histogram {
  std::string name = {};
  std::int64_t step = 0;
  double min = 0;
  double max = 0;
  std::int64_t count = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> ends = {};          ///< upper ends of the bins; the last bin includes its end
  std::vector<std::int64_t> counts = {};  ///< number of elements per bin
};

/// @param values  finite; at least one
/// @param bins    >= 1
/// @throws std::invalid_argument  the arguments are outside these ranges
Histogram histogram_of(std::span<const float> values, std::size_t bins);

/// The meaning of the colors of a picture of a field.
struct ColorScale {
  std::string group = {};                ///< pictures of one group are shown in one row under this heading
  double low = 0;                        ///< value of the first color
  double high = 0;                       ///< value of the last color
  std::string unit = {};                 ///< unit of the values; "" = unknown
  std::vector<std::string> colors = {};  ///< "#rrggbb" at equal distances, between which colors are interpolated
};

/// An image, such as a sample of the data set.
struct Picture {
  std::string name = {};
  std::int64_t step = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels = {};  ///< [height, width, 3], red first, rows from the top
  std::string caption = {};
  bool is_wrong = false;                 ///< whether the caption shows a wrong prediction
  std::optional<ColorScale> scale = {};  ///< fields only
};

}  // namespace lockstep
