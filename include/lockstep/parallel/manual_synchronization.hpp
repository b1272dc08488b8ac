// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <memory>
#include <string>
#include <vector>

// Manual synchronization of ranks, for steps with a backward that does not synchronize
// (DistributedDataParallel::no_sync, or without a wrapper).
namespace torch::nn {
class Module;
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

}  // namespace lockstep::parallel
