// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/evaluation/confusion_count.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/evaluation/predicted_values.hpp"
#include "metrics/meters.hpp"

namespace lockstep::engine {

/// Everything that an evaluation counts in addition to the losses: the meters of eval.metrics, the confusion matrix and
/// the values of a regression. A copy that has counted nothing serves one evaluation.
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

  /// The numbers by name, without "val/", and the tables, equal on every rank.
  /// @throws DataError  as metrics::Meters::read
  metrics::Meters::Readings read() const;

 private:
  metrics::Meters meters_;
  ConfusionCount confusion_ = ConfusionCount(0);
  PredictedValues predicted_ = PredictedValues(0);
  bool is_per_class_ = false;
  std::size_t classes_ = 0;
  std::vector<std::string> class_names_;
};

}  // namespace lockstep::engine
