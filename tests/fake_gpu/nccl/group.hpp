// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <memory>
#include <utility>
#include <vector>

#include "fake_gpu/nccl/communicator.hpp"
#include "fake_gpu/nccl/errors.hpp"

namespace lockstep::fake_gpu::nccl {

/// The calls of this thread between ncclGroupStart and the ncclGroupEnd that belongs to it.
class Group {
 public:
  static Group& of_this_thread();

  bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  ncclResult_t end();

  /// A call that fails makes the whole group fail.
  void note(ncclResult_t result);
  /// Launches a collective, or keeps it until the group ends.
  ncclResult_t add(const std::shared_ptr<FakeCommunicator>& communicator, const NcclOperation& operation);
  /// Begins a call of a communicator. If it is blocking, it is completed when the group ends: its peers may be called
  /// by this thread, too.
  ncclResult_t begin(const std::shared_ptr<FakeCommunicator>& communicator, FakeCommunicator::ProgressTest progress);

 private:
  struct Launch {
    std::shared_ptr<FakeCommunicator> communicator;
    std::vector<NcclOperation> operations;
  };

  void require_one_mode() const;
  ncclResult_t run();
  void complete_begun();

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::vector<Launch> launches_;
  std::vector<FakeCommunicator::ProgressTest> begun_;
};

/// Like `guarded`; a failure is noted in the group of this thread.
template <class Function>
ncclResult_t grouped(Function function) noexcept {
  const ncclResult_t result = guarded(function);
  Group::of_this_thread().note(result);
  return result;
}

}  // namespace lockstep::fake_gpu::nccl
