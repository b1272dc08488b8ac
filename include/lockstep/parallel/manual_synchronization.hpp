// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <memory>
#include <string>
#include <vector>

// Keeping ranks alike manually: for steps whose backward does not synchronize, as under
// DistributedDataParallel::no_sync or without a wrapper.
namespace torch::nn {
class Module;
}

namespace lockstep::parallel {

class DistributedDataParallel;
class GradientBuckets;
struct NamedParameter;

struct ManualSync {
  int root = 0;                           ///< whose values all ranks get
  bool parameters = false;                ///< beside the buffers
  std::vector<std::string> ignored = {};  ///< full names of what each rank keeps to itself
};

/// Gives all ranks the root's buffers and, on request, its parameters, trained or not.
/// @param module  not wrapped, where parameters are asked for
/// @throws ConfigError  there is no such rank, on every rank
/// Collective.
void manual_sync_parameters(const torch::nn::Module& module, mpi::Collectives& collectives,
                            const ManualSync& sync = {});
/// The same for a wrapped model, whose parameters only its store writes: of parameters the trained ones. `ignored` is
/// that of the wrapper.
void manual_sync_parameters(DistributedDataParallel& wrapper, const ManualSync& sync = {});

/// Averages gradients over ranks when it is told to, outside of backward: in flat buckets, all of them under way
/// together.
class ManualReducer {
 public:
  /// For the parameters that are trained now.
  /// @param collectives  of the ranks that train together: the average is over them. Outlives the object
  /// @param limits       of the buckets
  /// @throws ConfigError  see trained_parameters
  /// Collective: allocates.
  ManualReducer(const torch::nn::Module& module, mpi::Collectives& collectives, const BucketLimits& limits = {});
  ~ManualReducer();
  ManualReducer(ManualReducer&&) noexcept;
  ManualReducer& operator=(ManualReducer&&) noexcept;

  /// Replaces every gradient by the average of all ranks'. Where some ranks have none, theirs counts as zero; where no
  /// rank has one, none stays none. Under a loss scale these are averages of scaled gradients: those of 16 bits are
  /// summed and divided in 32 (with nccl, as NCCL does it).
  /// Collective.
  void all_reduce();

 private:
  mpi::Collectives* collectives_;
  std::vector<NamedParameter> parameters_;
  std::unique_ptr<GradientBuckets> buckets_;
};

/// A ManualReducer used once. Steps that repeat should keep one.
void manual_gradient_all_reduce(const torch::nn::Module& module, mpi::Collectives& collectives);

}  // namespace lockstep::parallel
