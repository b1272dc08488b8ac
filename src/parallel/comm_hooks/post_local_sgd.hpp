// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::parallel {

struct PostLocalSgdOptions {
  /// An average of the parameters: every `period` >= 1 steps, over `ranks`.
  struct GroupAverage {
    std::int64_t period = 4;
    mpi::Collectives* ranks = nullptr;  ///< this rank's group, or all ranks; outlives the hook
  };

  std::int64_t start_step = 100;  ///< gradients are averaged over all ranks before, over groups from here on; >= 0
  /// Starts at start_step, the smallest group first, the last one of all ranks. If several are due, the last one of
  /// them replaces the others.
  std::vector<GroupAverage> averages;
};

/// Averages gradients inside groups of ranks, and between groups only parameters, now and then: for groups that fast
/// links hold together, such as the ranks of a host.
///
///     PostLocalSgd local(*all, *group, {.averages = {{4, all.get()}}});
///     DistributedDataParallel wrapper(model, world, *all, {.comm_hook = [&](auto&) { return local.choice(); }});
///     while (...) { wrapper.train_step(...); local.after_update(wrapper); }
///
/// What still goes to all ranks in every step is one number per parameter: whether anybody had a gradient.
/// Source: Lin, Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020.
class PostLocalSgd {
 public:
  /// @param all    of the wrapper's ranks
  /// @param group  of those among them that always average, this rank included; both outlive the hook
  /// @throws ConfigError  options out of range
  PostLocalSgd(mpi::Collectives& all, mpi::Collectives& group, const PostLocalSgdOptions& options);

  /// The hook, with its number of steps for checkpoints.
  ChosenHook choice() const;

  /// Called after every update: averages the parameters if an average is due. Collective.
  /// @throws ConfigError  ranks of several groups share parameters
  void after_update(DistributedDataParallel& wrapper) const;
  /// Averages the parameters over all ranks. Collective.
  void average_all(DistributedDataParallel& wrapper) const;

 private:
  class Memory;
  std::shared_ptr<Memory> memory_;
};

}  // namespace lockstep::parallel
