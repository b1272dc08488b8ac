// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/cited.hpp"
#include "engine/measures/meter_names.hpp"
#include "metrics/classification.hpp"
#include "metrics/meters.hpp"

namespace lockstep::engine {

/// A key of that kind, which describes the rows.
KeySpec metrics_key(const char* name, const char* help, const std::vector<metrics::MeterRow>& meters);

struct EvalSettings {
  std::int64_t interval = 0;  ///< steps; 0: see PhaseSettings
  std::int64_t every_epochs = 1;
  std::int64_t begin_epoch = 1;
  std::int64_t batch_size = 200;  ///< samples of one forward on one rank; >= 1
  MeterNames metrics = {};
  Cited<std::string> weights = {"auto"};  ///< auto, trained or average

  /// All keys of section `eval`.
  static KeySpecs keys(const std::vector<metrics::MeterRow>& meters);
  static EvalSettings from(const Section& eval);
  bool operator==(const EvalSettings&) const = default;
};

/// The meters that are named, with nothing counted.
/// @param rows  which may be named
/// @throws ConfigError  an unknown one, with the nearest, options that do not fit, or two numbers of one name
/// Not collective.
metrics::Meters make_meters(const MeterNames& names, const Task& task,
                            const std::vector<metrics::MeterRow>& rows = metrics::builtin_meters());

/// Brings what meters have counted on each rank to all of them, ready to be read. Collective.
void sum_over_ranks(metrics::Meters& meters, mpi::Collectives& collectives);

/// Counts a whole data set: every sample once. Each rank takes its share of the batches, and their losses are added in
/// one order, so the result has the same bits on any number of ranks. A rank without a batch takes part in the
/// collectives like any other.
/// @param batch_size  samples of one forward; >= 1
/// @param meters      count it, too, for all ranks together: ready to be read on each
/// @param notify      called with StepEvent::forward and StepEvent::loss of every batch of this rank; may be empty
/// @return            sums over all ranks, the same on each
/// @throws DataError  on every rank: what a data set, a meter or a hook refuses on one
/// Collective. The model is in evaluation mode meanwhile.
metrics::ClassificationSums evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                                     const data::Dataset& dataset, std::int64_t batch_size, metrics::Meters& meters,
                                     const std::function<void(StepEvent, const LastBatch&)>& notify = {});
/// Without meters.
metrics::ClassificationSums evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                                     const data::Dataset& dataset, std::int64_t batch_size);

}  // namespace lockstep::engine
