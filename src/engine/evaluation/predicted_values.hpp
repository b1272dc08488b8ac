// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep::engine {

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

}  // namespace lockstep::engine
