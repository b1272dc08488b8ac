// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <vector>

namespace lockstep::parallel {

struct JoinOptions {
  bool divide_by_initial = true;  ///< average over all ranks; false = over the ranks that still have inputs
  bool throws_early = false;  ///< the first rank without inputs ends the loop on all ranks; for models that communicate
  bool is_enabled = true;     ///< false = the scope has no effect
};

/// A scope in which ranks can have different numbers of inputs.
///
///     Join join(wrapper);
///     while (has_inputs) wrapper.train_step(...);
///     join.finish();
///
/// A rank that calls `finish` participates in the steps of the others with zero gradients until all ranks have called
/// it. Then the parameters and buffers of the last rank (the highest of several) are broadcast; the optimizer state is
/// not. Until then, buffers are broadcast from the highest rank with inputs; averaged buffers include the last averages
/// of ranks without inputs.
///
/// Inside the scope, each forward with gradients needs one small collective and must be followed by exactly one
/// backward, which synchronizes on all ranks or on none (no_sync). Several wrappers run in the given order in every
/// step, forward and backward of one before the next. With a static graph, every rank needs at least one input.
/// Gradients are averaged before the update, not in slices. A sampler with the same number of batches on all ranks
/// makes the scope unnecessary. A model that communicates (SyncBatchNorm) needs such a sampler, or throws_early.
///
/// If an exception ends the scope, no rank waits.
class Join {
 public:
  /// @param wrapper  outlives the scope
  /// @throws ConfigError  the wrapper shares parameters between ranks, weights samples, or is already in a Join
  explicit Join(DistributedDataParallel& wrapper, const JoinOptions& options = {});
  explicit Join(std::vector<DistributedDataParallel*> wrappers, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Ends the scope; this rank has no more inputs. Collective.
  /// @throws DataError    with throws_early, here or from forward, on every rank: a rank has no inputs while others
  ///                      have
  /// @throws ConfigError  here or from forward: some ranks synchronize a step and others only accumulate; on every rank
  void finish();

 private:
  /// The states of the ranks before one forward.
  struct Round {
    std::vector<int> exhausted;  ///< ranks that have come to finish
    int active = 0;              ///< how many others there are,
    int highest = -1;            ///<   and the last of them
    bool synchronizes = false;
  };
  Round meet(DistributedDataParallel& wrapper, bool has_input) const;
  void adopt(DistributedDataParallel& wrapper, const Round& round) const;
  void shadow(DistributedDataParallel& wrapper, const Round& round) const;
  void leave() noexcept;

  std::vector<DistributedDataParallel*> wrappers_;
  JoinOptions options_;
  int authority_ = -1;  // the highest rank that had inputs in the latest step; -1 = there was none
};

}  // namespace lockstep::parallel
