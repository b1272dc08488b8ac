// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Synchronization of ranks besides the wrapper: by hand, for steps with a backward that does not synchronize
// (DistributedDataParallel::no_sync, or without a wrapper), and the statistics of batch normalization.
namespace torch::nn {
class Module;
}

namespace lockstep::models {
class BatchNorm;
}

namespace lockstep::parallel {

class DistributedDataParallel;
class GradientBuckets;
struct NamedParameter;

struct ManualSync {
  int root = 0;                           ///< rank that provides the values
  bool parameters = false;                ///< also broadcast the parameters
  std::vector<std::string> ignored = {};  ///< full names of parameters and buffers that are not synchronized
};

/// Broadcasts the buffers and, on request, all parameters of the root.
/// @param module  must not be wrapped if parameters are broadcast
/// @throws ConfigError  on every rank, if the root is not a rank
/// Collective.
void manual_sync_parameters(const torch::nn::Module& module, mpi::Collectives& collectives,
                            const ManualSync& sync = {});
/// The same for a wrapped model; only trained parameters are broadcast. `ignored` is taken from the wrapper.
void manual_sync_parameters(DistributedDataParallel& wrapper, const ManualSync& sync = {});

/// Averages gradients over ranks on request, outside of backward, in flat buckets that are reduced concurrently.
class ManualReducer {
 public:
  /// Creates a reducer for the parameters that are currently trained.
  /// @param collectives  of the ranks to average over; outlives the object
  /// @param limits       sizes of the buckets
  /// @throws ConfigError  see trained_parameters
  /// Collective: allocates.
  ManualReducer(const torch::nn::Module& module, mpi::Collectives& collectives, const BucketLimits& limits = {});
  ~ManualReducer();
  ManualReducer(ManualReducer&&) noexcept;
  ManualReducer& operator=(ManualReducer&&) noexcept;

  /// Replaces every gradient by the average over all ranks. A missing gradient counts as zero, unless no rank has one.
  /// With a loss scale, these are averages of scaled gradients. 16-bit gradients are summed and divided in 32 bits
  /// (with nccl, as NCCL does).
  /// Collective.
  void all_reduce();

 private:
  mpi::Collectives* collectives_;
  std::vector<NamedParameter> parameters_;
  std::unique_ptr<GradientBuckets> buckets_;
};

/// Averages gradients once. For repeated steps, keep a ManualReducer.
void manual_gradient_all_reduce(const torch::nn::Module& module, mpi::Collectives& collectives);

/// The BatchNorm layers of a model by name, in the order of registration.
/// @throws ConfigError  a layer is from torch::nn or in the code of a TorchScript archive, and cannot be synchronized
std::vector<std::pair<std::string, models::BatchNorm*>> batch_norms_of(const models::Model& model);

/// Makes the BatchNorm layers of `model` normalize training batches with the statistics over all ranks. Outputs, input
/// gradients and running statistics are those of one process with the whole batch. The batches of ranks can have
/// different sizes, also 0; one value per channel and rank is sufficient. Gradients of scale and shift are sums over
/// this rank, which the wrapper averages like other gradients.
///
/// Each training forward is then collective (one all_gather of 2 C + 2 numbers), and its backward too if the input of
/// the layer requires a gradient (one all_reduce of 2 C numbers). Evaluation does not communicate. Second derivatives
/// are not supported. With one rank, the layers are not changed.
/// @param collectives  of the ranks that share statistics; the layers use a split of it, independent of the reductions
///                     of the reducer
/// @return             number of BatchNorm layers in the model, each now synchronized
/// @throws ConfigError  a layer is from torch::nn and cannot be replaced; from a forward, on every rank: there is only
///                      one value per channel, or inputs require gradients on some ranks only
/// Collective.
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
std::size_t convert_to_sync_batch_norm(models::Model& model, mpi::Collectives& collectives);

/// Checks the last forward, whose errors the next one would report on a GPU, and a captured step that was launched. The
/// host waits for the GPU.
/// @throws ConfigError  as a forward
void check_last_batch(const models::Model& model);

/// Makes the layers use the statistics of this rank again. Not collective.
void revert_sync_batch_norm(models::Model& model);

}  // namespace lockstep::parallel
