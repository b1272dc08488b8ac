// SPDX-License-Identifier: BSD-3-Clause
#include "report/page/evaluation_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plot/line_chart.hpp"
#include "plot/matrix_chart.hpp"
#include "plot/svg.hpp"
#include "report/page/curve_charts.hpp"
#include "report/page/html.hpp"

namespace lockstep::report {

namespace {

using plot::escaped;
using Lines = std::vector<std::vector<std::string>>;

constexpr std::size_t kFewClasses = 20;  // a narrow chart has room for counts and numbers of this many classes
constexpr int kWideChart = 720;
constexpr std::size_t kMaxMistakes = 10;
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

std::string last_part(const std::string& name) { return name.substr(name.rfind('/') + 1); }

bool is_confusion(const Table& table) {
  return last_part(table.name) == "confusion" && table.columns > 0 && table.rows() == table.columns;
}

std::string cell_of(double value) { return std::isnan(value) ? "-" : fmt::format("{:.4g}", value); }

/// The name of a class, or its number.
std::string class_text(const Table& table, std::size_t c) {
  return table.names.size() == table.columns ? table.names[c] : std::to_string(c);
}

/// Counts of a confusion matrix: rows are targets, columns predictions.
struct ClassCounts {
  double targets = 0;
  double predictions = 0;
  double hits = 0;
};

std::vector<ClassCounts> counts_of(const Table& confusion) {
  std::vector<ClassCounts> counts(confusion.columns);
  for (std::size_t i = 0; i < confusion.values.size(); ++i) {
    const std::size_t target = i / confusion.columns;
    const std::size_t prediction = i % confusion.columns;
    counts[target].targets += confusion.values[i];
    counts[prediction].predictions += confusion.values[i];
    if (target == prediction) counts[target].hits += confusion.values[i];
  }
  return counts;
}

std::string ratio_text(double part, double whole) { return whole > 0 ? fmt::format("{:.3f}", part / whole) : "-"; }

std::string mistakes_table(const Table& confusion) {
  struct Mistake {
    std::size_t target, prediction;
    double count;
  };
  std::vector<Mistake> mistakes;
  for (std::size_t i = 0; i < confusion.values.size(); ++i) {
    const Mistake mistake{i / confusion.columns, i % confusion.columns, confusion.values[i]};
    if (mistake.count > 0 && mistake.target != mistake.prediction) mistakes.push_back(mistake);
  }
  std::stable_sort(mistakes.begin(), mistakes.end(),
                   [](const Mistake& a, const Mistake& b) { return a.count > b.count; });
  if (mistakes.size() > kMaxMistakes) mistakes.resize(kMaxMistakes);
  const std::vector<ClassCounts> counts = counts_of(confusion);
  Lines rows;
  for (const auto& [target, prediction, count] : mistakes) {
    rows.push_back({class_text(confusion, target), class_text(confusion, prediction), fmt::format("{:.0f}", count),
                    fmt::format("{:.1f} %", 100 * count / counts[target].targets)});
  }
  return html_table({"class", "predicted as", "samples", "of the class"}, rows);
}

std::string matrix_of(const Table& confusion) {
  const bool is_small = confusion.columns <= kFewClasses;
  const std::string svg = plot::matrix_chart({.title = "Confusion matrix",
                                              .row_label = "class",
                                              .column_label = "predicted as",
                                              .classes = confusion.columns,
                                              .counts = confusion.values,
                                              .names = confusion.names,
                                              .width = is_small ? kChartWidth : kWideChart});
  return is_small ? html_charts({svg}, mistakes_table(confusion)) : html_wide_chart(svg) + mistakes_table(confusion);
}

/// A row for each class: what the matrix says, and every table of one row that has as many columns.
std::string class_table(const Table* confusion, const std::vector<const Table*>& rows_by_class) {
  std::vector<std::string> head = {"class"};
  Lines rows(confusion != nullptr ? confusion->columns : rows_by_class.front()->columns);
  const Table& named = confusion != nullptr ? *confusion : *rows_by_class.front();
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(class_text(named, i));
  if (confusion != nullptr) {
    head.insert(head.end(), {"samples", "predicted", "recall", "precision", "F1"});
    const std::vector<ClassCounts> counts = counts_of(*confusion);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto& [targets, predictions, hits] = counts[i];
      rows[i].insert(rows[i].end(),
                     {fmt::format("{:.0f}", targets), fmt::format("{:.0f}", predictions), ratio_text(hits, targets),
                      ratio_text(hits, predictions), ratio_text(2 * hits, targets + predictions)});
    }
  }
  for (const Table* table : rows_by_class) {
    if (table->columns != rows.size()) continue;
    head.push_back(last_part(table->name));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(cell_of(table->values[i]));
  }
  const std::string table = html_table(head, rows);
  return rows.size() <= kFewClasses ? table : html_details(std::to_string(rows.size()) + " classes in numbers", table);
}

std::string cmc_chart(const Table& table) {
  plot::LineChart chart{.title = "Cumulative matching characteristic",
                        .x_label = "rank",
                        .y_label = "fraction of the queries",
                        .series = {{"", {}}},
                        .width = kChartWidth,
                        .height = 290};
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    chart.series[0].points.push_back({static_cast<double>(i + 1), table.values[i]});
  }
  return html_charts({plot::line_chart(chart)});
}

/// A chart for each output of a regression. Of points on the line, the prediction is the target.
/// @param table  columns: target and prediction of each output
std::string prediction_charts(const Table& table) {
  std::vector<std::string> charts;
  const std::size_t outputs = table.columns / 2;
  for (std::size_t j = 0; j < outputs; ++j) {
    plot::Series samples{.name = "samples", .points = {}};
    double low = kUndefined;
    double high = kUndefined;
    for (std::size_t i = 0; i < table.rows(); ++i) {
      const double target = table.values[i * table.columns + 2 * j];
      const double prediction = table.values[i * table.columns + 2 * j + 1];
      low = std::fmin(low, target);
      high = std::fmax(high, target);
      samples.points.push_back({target, prediction});
      samples.points.push_back({kUndefined, kUndefined});  // a point of its own is a dot
    }
    const std::string of_output = outputs == 1 ? "" : " of output " + std::to_string(j);
    charts.push_back(plot::line_chart({.title = "Predicted against true values" + of_output,
                                       .x_label = "target",
                                       .y_label = "prediction",
                                       .series = {std::move(samples), {"equal", {{low, low}, {high, high}}}},
                                       .width = kChartWidth,
                                       .height = kChartWidth}));
  }
  return html_charts(charts);
}

std::string plain_table(const Table& table) {
  Lines rows(table.rows());
  for (std::size_t i = 0; i < table.values.size(); ++i) rows[i / table.columns].push_back(cell_of(table.values[i]));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].insert(rows[i].begin(), std::to_string(i));
  return html_details(table.name, html_table({}, rows));
}

}  // namespace

std::string tables_section(const std::vector<Table>& tables) {
  const auto found = std::find_if(tables.begin(), tables.end(), is_confusion);
  const Table* const confusion = found == tables.end() ? nullptr : &*found;
  std::vector<const Table*> rows_by_class;
  std::string others;
  std::int64_t step = 0;
  for (const Table& table : tables) {
    if (!table.title.empty()) continue;  // a chart of fields
    step = std::max(step, table.step);
    if (&table == confusion || table.values.empty()) continue;
    if (last_part(table.name) == "cmc") {
      others += cmc_chart(table);
    } else if (last_part(table.name) == "predicted" && table.columns % 2 == 0) {
      others += prediction_charts(table);
    } else if (table.rows() == 1 && (confusion == nullptr || table.columns == confusion->columns)) {
      rows_by_class.push_back(&table);
    } else {
      others += plain_table(table);
    }
  }
  std::string content = confusion == nullptr ? "" : matrix_of(*confusion);
  const bool has_classes = confusion != nullptr || !rows_by_class.empty();
  if (has_classes) content += class_table(confusion, rows_by_class);
  const std::string title = has_classes ? "Classes in the evaluation" : "Evaluation";
  return html_section(fmt::format("{} after step {}", title, step), content + others);
}

std::string pictures_section(const std::vector<Base64Image>& pictures) {
  std::string figures;
  std::size_t wrong = 0;
  std::size_t judged = 0;
  std::int64_t step = 0;
  bool has_masks = false;
  for (const Base64Image& picture : pictures) {
    if (picture.scale) continue;  // a picture of a field
    step = std::max(step, picture.step);
    const bool is_mask = last_part(picture.name).starts_with("mask_");
    has_masks = has_masks || is_mask;
    wrong += picture.is_wrong ? 1 : 0;
    judged += picture.caption.empty() || is_mask ? 0 : 1;
    figures += html_figure({.alt = last_part(picture.name),
                            .caption = picture.caption,
                            .is_marked = picture.is_wrong,
                            .height = picture.height,
                            .width = picture.width,
                            .png = picture.png});
  }
  if (figures.empty()) return "";
  const std::string said = judged == 0 ? "" : fmt::format(", {} of {} classified incorrectly", wrong, judged);
  const std::string order = has_masks ? " From left to right: image, target mask, predicted mask." : "";
  return html_section("Samples with predictions", "<p>" +
                                                      escaped(fmt::format("After step {}{}.{}", step, said, order)) +
                                                      "</p>\n<div class=\"pictures\">\n" + figures + "</div>\n");
}

}  // namespace lockstep::report
