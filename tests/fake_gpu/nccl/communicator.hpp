// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "fake_gpu/nccl/capture_state.hpp"
#include "fake_gpu/nccl/launch_order.hpp"
#include "fake_gpu/nccl/member.hpp"

namespace lockstep::fake_gpu::nccl {

/// The object that the handle of a communicator stands for.
class FakeCommunicator {
 public:
  /// A step of a call; returns whether the call is complete.
  using ProgressTest = std::function<bool()>;

  struct CommOptions {
    int device = 0;
    bool is_blocking = true;
  };

  FakeCommunicator(std::shared_ptr<Member> member, const CommOptions& options);

  Member& member() { return *member_; }
  const CommOptions& options() const { return options_; }

  /// @throws Refusal  the communicator takes no call now
  void require_ready();

  /// Completes a call: here if the communicator is blocking, else by and by when its state is read.
  /// @return ncclSuccess or ncclInProgress
  ncclResult_t begin(ProgressTest progress);

  /// The answer of ncclCommGetAsyncError. It says "in progress" for the first polls, and the last call takes effect
  /// only then: a program that does not wait for it finds its collective missing.
  ncclResult_t state();

  /// Queues a group of collectives.
  ncclResult_t launch(const std::vector<NcclOperation>& group);

  ncclResult_t finalize();
  /// Returns when the communicator can be freed. As in NCCL, that is not before the last graph with one of its
  /// collectives is destroyed.
  void destroy();
  /// Like `destroy`, but ends what runs instead of waiting for it.
  void abort();

 private:
  /// @throws Refusal  a call is in progress, or one failed
  void require_settled();
  void require_end_of_finalize();
  bool queue(const std::vector<NcclOperation>& group, const std::vector<CommCapture>& called);
  /// Whether all that was queued is complete, and no graph is left.
  bool is_quiet();

  std::shared_ptr<Member> member_;
  CommOptions options_;
  LaunchOrder order_;

  std::mutex mutex_;  ///< protects the rest; not held while work is queued, which may take long
  std::shared_ptr<const ProgressTest> under_way_;
  bool is_advancing_ = false;
  int polls_left_ = 0;
  bool is_finalized_ = false;
  ncclResult_t state_ = ncclSuccess;
};

/// Makes a handle, which keeps the communicator alive until `forget`.
ncclComm_t handle_of(std::shared_ptr<FakeCommunicator> communicator);
/// @throws Refusal  there is no such communicator
std::shared_ptr<FakeCommunicator> find(ncclComm_t handle);
void forget(ncclComm_t handle);

}  // namespace lockstep::fake_gpu::nccl
