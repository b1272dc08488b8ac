// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/metrics/classification.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/gradient_reducer.hpp>
#include <lockstep/parallel/parameter_store.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

struct DdpOptions {
  BucketLimits limits;
  bool shares_parameters = false;  ///< one copy of the parameters per host

  /// From section `ddp`; `auto` shares where several ranks of a host use the shm backend.
  static DdpOptions from(const Section& ddp, const mpi::Collectives& collectives);
};

/// What one micro_batch gave.
struct StepResult {
  double loss = 0;  ///< this rank's mean loss, unweighted
  optim::UpdateReport update;
};

/// Trains one model on all ranks: each rank feeds its share of a batch, gradients are averaged, and all ranks hold the
/// same parameters after every update. Averages weigh ranks equally; unequal shares are weighed through `weight`.
class DistributedDataParallel {
 public:
  /// Checks that all ranks brought the same model before any data moves, gives everyone rank 0's parameters and
  /// buffers, and installs the reducer. Collective.
  /// @throws ConfigError  the models differ (the first difference: names, shapes, strides, dtypes, requires_grad), or
  ///                      nothing in the model is trained; on every rank
  DistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                          mpi::Collectives& collectives, const DdpOptions& options);

  /// Runs the model; while gradients are enabled this decides whether the backward passes that follow synchronise.
  at::Tensor forward(const at::Tensor& input);

  /// Forward, losses, backward and, when `optimizer` completes its step, the update.
  /// @param weight  the micro_batch's share of the step's average on this rank: 1 / micro_batches when all samples
  ///                weigh the same and ranks have equal shares; in general world_size * samples / global_batch_size
  /// Collective when `optimizer` completes its step.
  StepResult train_step(const data::Batch& batch, optim::OptimWrapper& optimizer, double weight);

  /// Forward without gradients, counted. Not collective.
  metrics::ClassificationSums val_step(const data::Batch& batch);

  /// While one lives, forwards only accumulate gradients on this rank.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& wrapper) : wrapper_(&wrapper), before_(wrapper.synchronises_) {
      wrapper.synchronises_ = false;
    }
    ~NoSync() { wrapper_->synchronises_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel* wrapper_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(*this); }

  models::Model& model() noexcept { return *model_; }
  ParameterStore& parameters() noexcept { return *store_; }
  GradientReducer& reducer() noexcept { return *reducer_; }

 private:
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<GradientReducer> reducer_;
  at::ScalarType dtype_;  // of the parameters: inputs are converted to it
  bool synchronises_ = true;
};

/// Throws the same ConfigError on every rank if the ranks' models differ, naming the first difference. Collective.
void verify_same_model(const models::Model& model, const mpi::Communicator& world);

}  // namespace lockstep::parallel
