// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/keys/cited.hpp"
#include "core/text/every.hpp"
#include "engine/evaluation/batch_loop.hpp"
#include "metrics/meters.hpp"
#include "optim/averages/model_average.hpp"

namespace lockstep::engine {

/// Meters with their options, as eval.metrics and train.metrics name them.
using MeterNames = Cited<std::vector<std::string>>;

/// A key of that kind, which describes the rows.
KeySpec metrics_key(const char* name, const char* help, const std::vector<metrics::MeterRow>& meters);

struct EvalSettings {
  Cited<std::string> split = {"val"};
  Every every = Every({.epochs = 1});
  Begin begin = {};
  EvaluationLimits limits = {200};
  MeterNames metrics = {};
  bool is_per_class = false;              ///< report numbers of each class, too
  Cited<std::int64_t> rollout = {0};      ///< forward passes of a rollout that is evaluated, too; 0 = none
  bool rolls_out_first = false;           ///< only from the first window of each trajectory
  Cited<std::string> climatology = {};    ///< FILE:VARIABLE that anomalies are differences to; empty = none
  Cited<std::string> weights = {"auto"};  ///< auto, trained or average

  /// All keys of section `eval`.
  static KeySpecs keys(const std::vector<metrics::MeterRow>& meters);
  static EvalSettings from(const Section& eval);
  /// Whether an evaluation follows the last step that is done, according to steps, epochs and the end of the run. A
  /// pure function of the progress, so that a resumed run needs nothing else.
  bool is_due(const Progress& progress) const;
  bool is_never() const noexcept { return every.is_never(); }
  bool operator==(const EvalSettings&) const = default;
};

/// The part of the data that eval.split names.
/// @throws ConfigError  the source does not have this part; the message names those that it has
const data::Dataset& split_of(const data::Splits& splits, const Cited<std::string>& name);

/// Counts one batch.
/// @param first  number of its first sample
void add_to(metrics::Meters& meters, const batch::Outputs& outputs, const batch::Batch& batch, std::int64_t first);

/// Brings what meters have counted on each rank to all of them, ready to be read. Collective.
void sum_over_ranks(metrics::Meters& meters, mpi::Collectives& collectives);

/// The result of an evaluation, equal on every rank.
struct EvaluationResult {
  /// Means over all samples, or over what the model counts: "loss" first, which is the one that is trained.
  std::vector<std::pair<std::string, double>> losses = {{"loss", 0}};
  std::int64_t count = 0;    ///< classes that were requested, or where targets are no classes, samples
  std::int64_t correct = 0;  ///< those of `count` that were predicted correctly
  bool has_classes = true;   ///< every target was one class

  double mean_loss() const { return losses.front().second; }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(count); }
  /// The values by the names of the record, without "val/": losses, then accuracy and perplexity where the kind of the
  /// task has them, then count.
  std::vector<std::pair<std::string, double>> values(TaskKind kind) const;
};

/// Counts a data set: every sample once. Each rank takes its share of the batches, and their losses are added in
/// one order, so the result has the same bits on any number of ranks. A rank without a batch takes part in the
/// collectives like any other.
/// @param meters  count it, too, for all ranks together: ready to be read on each
/// @param notify  called with StepEvent::forward and StepEvent::loss of every batch of this rank; may be empty
/// @throws DataError  on every rank: what a data set, a meter or a hook refuses on one
/// Collective. The model is in evaluation mode meanwhile.
EvaluationResult evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                          const data::Dataset& dataset, const EvaluationLimits& limits, metrics::Meters& meters,
                          const std::function<void(StepEvent, const LastBatch&)>& notify = {});

/// Runs `body` with averaged weights and buffers in the model, where there is an average that has begun; then, and
/// after an exception too, the trained ones are back with all their bits. Without an average it only runs `body`.
/// Collective. After an exception each rank puts its own parts back, and waits for nobody: where parameters are shared
/// the others' are back once all ranks have come out of here, and where they are sharded after the next
/// ParameterStore::write.
/// @param average  of the wrapper's model; null = none
void with_average(parallel::DistributedDataParallel& wrapper, optim::ModelAverage* average,
                  const std::function<void()>& body);

}  // namespace lockstep::engine
