// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>

namespace lockstep::parallel {

struct PostLocalSgdOptions {
  std::int64_t start_step = 100;  ///< gradients are averaged over all ranks before, over groups from here on; >= 0
  std::int64_t period = 4;        ///< from start_step on, of the averages of parameters over all ranks, in steps; >= 1
};

/// Averages gradients inside groups of ranks, and between groups only parameters, now and then: for groups that fast
/// links hold together, such as the ranks of a host.
///
///     PostLocalSgd local(*all, *group, {});
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

  /// After every update: averages the parameters when their time has come. Collective.
  /// @throws ConfigError  ranks of several groups share parameters
  void after_update(DistributedDataParallel& wrapper) const;

 private:
  class Memory;
  std::shared_ptr<Memory> memory_;
};

}  // namespace lockstep::parallel
