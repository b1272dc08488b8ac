// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::parallel {

struct JoinOptions {
  bool divide_by_initial = true;  ///< averages are over all ranks throughout; false = over those that still have inputs
  bool throws_early = false;      ///< the first rank without inputs ends the loop of all; for models that communicate
  bool is_enabled = true;         ///< false = nothing happens here
};

/// A scope in which ranks may have different numbers of inputs.
///
///     Join join(wrapper);
///     while (has_inputs) wrapper.train_step(...);
///     join.finish();
///
/// A rank that has come to finish takes part in the steps of the others with zero gradients until all have come. Then
/// everyone gets the parameters and buffers of the rank that was among the last (of several the highest); optimizer
/// state stays where it is. Meanwhile buffers are broadcast from the highest rank that has inputs; buffers that are
/// averaged include the last averages of ranks without.
///
/// Inside the scope each forward with gradients costs one small collective and precedes exactly one backward; where it
/// counts (no_sync), it synchronizes on all ranks or on none. Several wrappers run one after another in the given order
/// in every step, forward and backward of one before the next. With a static graph every rank needs an input. Gradients
/// are averaged whole, before the update. A sampler that gives all ranks the same number of batches makes all this
/// unnecessary; a model that communicates by itself (SyncBatchNorm) needs it, or throws_early.
///
/// When an exception ends the scope, nobody waits for anybody.
class Join {
 public:
  /// @param wrapper  outlives the scope
  /// @throws ConfigError  the wrapper shares parameters between ranks, weighs samples, or is in a Join already
  explicit Join(DistributedDataParallel& wrapper, const JoinOptions& options = {});
  explicit Join(std::vector<DistributedDataParallel*> wrappers, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// This rank has no more inputs. Ends the scope. Collective.
  /// @throws DataError    with throws_early, here or from forward: a rank has come here while others have inputs; on
  ///                      every rank
  /// @throws ConfigError  here or from forward: some ranks synchronize a step and others only accumulate; on every rank
  void finish();

 private:
  /// What the ranks said before one forward.
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
