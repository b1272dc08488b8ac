// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optim_wrapper_dict.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// Trains the children of one model with one optimizer each, for example a generator and a discriminator. The
/// optimizers can step at different times. Every child with trained parameters has its own wrapper and collectives; the
/// values of other children are broadcast once.
///
/// A backward through a child averages its gradients. As without ranks, gradients of a previous step are part of the
/// next update. To avoid this, run a child that is not trained with requires_grad=false or on detached tensors, or
/// clear its gradients (`child(name).parameters().drop_gradients()`) before its own step.
class SeparateDistributedDataParallel {
 public:
  /// Checks that all ranks have the same model, and wraps its children. Collective.
  /// @param collectives  of the ranks of `world`; outlives the wrapper
  /// @throws ConfigError  the models differ; nothing is trained; a trained parameter belongs to the model itself, to
  /// two
  ///                      children, or to a child that is no models::Block; on every rank
  SeparateDistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                                  mpi::Collectives& collectives, const DdpOptions& options);
  ~SeparateDistributedDataParallel();

  /// Runs forward, backward and updates of the children, as defined by the user.
  using Step = std::function<models::LossMap(const batch::Batch& batch, optim::OptimWrapperDict& optimizers)>;
  /// Calls `step`. Meanwhile every child that runs through models::run is prepared as by its wrapper's forward, and
  /// only accumulates where the optimizer of its name is not about to complete its step. Forwards of children, not what
  /// the step does with their outputs, are in the type of DdpOptions::autocast.
  /// @param optimizers  one optimizer per trained child, by name
  /// @throws ConfigError  the name of an optimizer is not the name of a wrapped child
  models::LossMap train_step(const batch::Batch& batch, optim::OptimWrapperDict& optimizers, const Step& step);

  /// Prepares a batch for the whole model, like DistributedDataParallel::prepare.
  batch::Batch prepare(const batch::Batch& batch, bool is_training) const;
  /// Forward and losses of the whole model, without gradients.
  ValidationResult val_step(const batch::Batch& batch);
  /// Predictions of the whole model, without gradients; the batch needs no target.
  models::Predictions test_step(const batch::Batch& batch);

  /// During its lifetime, backward passes of any child only accumulate gradients on this rank.
  class NoSync {
   public:
    explicit NoSync(SeparateDistributedDataParallel& wrapper);

   private:
    std::deque<DistributedDataParallel::NoSync> all_;
  };
  NoSync no_sync() { return NoSync(*this); }

  std::vector<std::string> names() const;  ///< names of the wrapped children, in alphabetical order
  /// @throws ConfigError  there is no wrapped child with this name
  DistributedDataParallel& child(const std::string& name);
  models::Model& model() noexcept { return *model_; }
  const mpi::Communicator& world() const noexcept { return world_; }

 private:
  struct Child {
    models::Block* block;
    std::unique_ptr<mpi::Collectives> collectives;  // its own, since backward may mix the buckets of children
    std::unique_ptr<DistributedDataParallel> wrapper;
  };
  /// During the lifetime of the tap, every child is prepared before it runs, as in the forward of its wrapper.
  /// @param optimizers  null = nothing is updated
  models::Tap tap_of_children(const optim::OptimWrapperDict* optimizers);
  batch::Outputs forward(const batch::Batch& prepared);
  void require_separable() const;
  void broadcast_rest(const mpi::Communicator& world, const DdpOptions& options) const;

  std::shared_ptr<models::Model> model_;
  mpi::Communicator world_;
  std::map<std::string, Child> children_;
};

}  // namespace lockstep::parallel
