// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/evaluation/predictions.hpp"
#include "trainer/predict/settings.hpp"

namespace lockstep::trainer {

/// Predictions as text, one line per sample: JSON or CSV, with quotes as in RFC 4180. Probabilities have 6 significant
/// digits; values of a regression have as many digits as their type needs.
class SampleText {
 public:
  /// @param task  of the model
  SampleText(const PredictSettings& settings, PredictionForm form, Task task, const data::Dataset& dataset);

  /// The lines of a batch.
  /// @param given  the batch; its lists of texts and numbers are added to each line
  /// @throws ConfigError  a sample has too many numbers for a table
  std::string lines(const engine::BatchPredictions& predictions, const batch::Batch& given) const;
  /// The names of the columns of a table with such samples; empty for JSON.
  std::string header(const engine::BatchPredictions& predictions, const batch::Batch& given) const;

 private:
  struct Line;
  Line line_of(const engine::BatchPredictions& predictions, const batch::Batch& given, std::int64_t i) const;
  void add_classes(Line& line, std::span<const double> row) const;
  void add_class_cells(Line& line, std::span<const double> row, const at::Tensor& target) const;
  bool is_multilabel() const { return task_.kind == TaskKind::multilabel; }

  PredictSettings settings_;
  PredictionForm form_;
  Task task_;
  const data::Dataset* dataset_;
};

/// The row of a matrix [N, C] of doubles.
std::span<const double> row_of(const at::Tensor& matrix, std::int64_t i);

/// The indices of the k largest values, the largest first, and of equal values the first one first.
/// @param values  not NaN
std::vector<std::int64_t> top_indices(std::span<const double> values, std::int64_t k);

/// The name of the file with the mask of a sample, in predict.masks.
std::string mask_name(std::int64_t index);

}  // namespace lockstep::trainer
