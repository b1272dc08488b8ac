// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/evaluation/evaluation.hpp"
#include "metrics/meters.hpp"

namespace lockstep::engine {

/// The meters that are named, with nothing counted.
/// @param rows  which may be named
/// @throws ConfigError  an unknown one, with the nearest, options that do not fit, or two numbers of one name
/// Not collective.
metrics::Meters make_meters(const MeterNames& names, const Task& task,
                            const std::vector<metrics::MeterRow>& rows = metrics::builtin_meters());
/// The same, of evaluations: where none is named, those of the kind of the task.
metrics::Meters make_eval_meters(const MeterNames& names, const Task& task,
                                 const std::vector<metrics::MeterRow>& rows = metrics::builtin_meters());

/// The confusion matrix, if every sample has one class and one score per class: the table of the meter "confusion"
/// without its numbers. Otherwise none.
class ConfusionCount {
 public:
  /// The classes of a task that are counted without a request; 0 = none.
  /// @param is_per_class  eval.per_class: of many classes, too
  static std::int64_t classes_of(const Task& task, bool is_per_class);

  /// @param classes  0 = nothing is counted
  explicit ConfusionCount(std::int64_t classes);

  void add(const LastBatch& batch);
  /// Collective, unless nothing is counted.
  void sum_over_ranks(mpi::Collectives& collectives);
  std::optional<Table> table() const;

 private:
  std::int64_t classes_;
  std::vector<std::int64_t> words_;  // counts, [classes, classes], and how many batches cannot be counted
};

/// True and predicted values of a regression, of samples at even distances in the evaluated data, for a chart in the
/// report. Both have the unit of the targets. Which samples these are does not depend on the number of ranks.
class PredictedValues {
 public:
  static constexpr std::int64_t kMaxSamples = 500;
  static constexpr std::size_t kMaxOutputs = 8;

  /// @param samples  of the data set; 0 = nothing is kept
  explicit PredictedValues(std::int64_t samples);

  /// Outputs of more than kMaxOutputs values for each sample, such as fields, are left out. Not collective.
  void add(const LastBatch& batch);
  /// Collective: every rank gets the samples of all.
  void gather(mpi::Collectives& collectives);
  /// Table "predicted": a row for each sample, with the target and the prediction of each output. None of no sample.
  std::optional<Table> table() const;

 private:
  std::int64_t distance_ = 0;  // every distance_-th sample is kept; 0 = none
  metrics::Samples kept_;
};

/// The numbers of each class in a table of an evaluation, by names such as "accuracy/cat": the share of the samples of
/// a class that are predicted as this class from the table "confusion", and the values of tables with one row and a
/// column per class, such as "iou". Undefined values are left out. Other tables have no such numbers.
/// @param names    of the classes; empty = their numbers
/// @param classes  number of classes
std::vector<std::pair<std::string, double>> class_numbers(const Table& table, const std::vector<std::string>& names,
                                                          std::size_t classes);

/// Everything that an evaluation counts in addition to the losses: the meters of eval.metrics, the confusion matrix,
/// the values of a regression, and the meters of eval.rollout. A copy that has counted nothing serves one evaluation.
class EvaluationCounts {
 public:
  EvaluationCounts() = default;
  /// @param rows        meters that may be named
  /// @param has_tables  whether tables are shown, too; if not, only those from which numbers are computed are counted
  /// @throws ConfigError  see make_eval_meters
  EvaluationCounts(const EvalSettings& settings, const data::Dataset& dataset,
                   const std::vector<metrics::MeterRow>& rows, bool has_tables);

  /// Evaluates a data set, as the function `evaluate` does, and counts it. Collective.
  EvaluationResult evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                            const data::Dataset& dataset, const EvaluationLimits& limits,
                            const std::function<void(StepEvent, const LastBatch&)>& notify = {});

  /// The numbers by name, without "val/", and the tables, equal on every rank. A rollout that is not finite has the
  /// worst infinity as the numbers of that step and of later ones.
  /// @throws DataError  as metrics::Meters::read
  metrics::Meters::Readings read() const;
  /// The units of those numbers that have one, by their names.
  std::vector<std::pair<std::string, std::string>> units() const;

 private:
  bool is_behind_end(const std::string& name, std::int64_t step) const;

  metrics::Meters meters_;
  std::shared_ptr<const data::Dataset> with_climatology_;  // null = the samples have none
  std::shared_ptr<const data::Dataset> rollout_;           // null = none is evaluated
  metrics::Meters rollout_meters_;
  std::int64_t rollout_steps_ = 0;  // steps of time of a rollout
  std::int64_t rollout_end_ = 0;    // the first step that is not finite, counted from 1; 0 = none
  ConfusionCount confusion_ = ConfusionCount(0);
  PredictedValues predicted_ = PredictedValues(0);
  bool is_per_class_ = false;
  std::size_t classes_ = 0;
  std::vector<std::string> class_names_;
};

}  // namespace lockstep::engine
