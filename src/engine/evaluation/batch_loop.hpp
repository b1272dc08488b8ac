// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <functional>
#include <string>

#include "models/layers/constant_weights.hpp"

namespace lockstep::engine {

/// The amount of data of an evaluation.
struct EvaluationLimits {
  std::int64_t batch_size = 1;   ///< samples of one forward on one rank; >= 1
  std::int64_t max_batches = 0;  ///< batches of all ranks together; 0 = the whole data set
  int loader_threads = 0;        ///< threads of a rank that load batches in advance; 0 = none

  bool operator==(const EvaluationLimits&) const = default;
};

/// The number of batches of an evaluation over all ranks; >= 1.
/// @throws DataError  the data set is empty; on every rank
std::int64_t batches_of(const data::Dataset& dataset, const EvaluationLimits& limits);

/// A prepared batch and the outputs of the model for it.
struct EvaluatedBatch {
  batch::Batch batch;
  batch::Outputs outputs;
};

/// Runs the model on a batch. The caller disables gradients. Collective if the forward is.
EvaluatedBatch run_batch(parallel::DistributedDataParallel& wrapper, const batch::Batch& given);

/// The model is in evaluation mode while one lives, and its parameters must not change.
class EvaluationMode {
 public:
  explicit EvaluationMode(models::Model& model) : model_(&model) { model.eval(); }
  ~EvaluationMode() { model_->train(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  models::Model* model_;
  models::ConstantWeights constant_weights_;
};

/// Calls `work` for every batch of this rank's share of a data set, in order. The batches are fixed blocks of the data
/// set, so that they do not depend on the number of ranks. If forwards are collective, a rank runs the model on the
/// first batch where other ranks have more batches. The model is in evaluation mode meanwhile, and its parameters must
/// not change. Its buffers must be equal on all ranks. Collective.
/// @param dataset  outlives the call
/// @param name     name of the work in lines about the progress
/// @param work     receives the number of the batch among those of all ranks, and the batch
/// @throws ConfigError  the batches of the ranks of a host do not fit into its memory; on every rank
/// @throws  on every rank, what `work` throws on one
void for_each_batch(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                    const data::Dataset& dataset, const EvaluationLimits& limits, const std::string& name,
                    const std::function<void(std::int64_t number, const batch::Batch& given)>& work);

}  // namespace lockstep::engine
