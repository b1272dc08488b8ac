// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <memory>

#include "fake_gpu/nccl/communicator.hpp"
#include "fake_gpu/nccl/member.hpp"
#include "fake_gpu/nccl/place.hpp"

namespace lockstep::fake_gpu::nccl {

/// A rank on its way into a communicator. It has come to the meeting; the others may be late.
class Joining {
 public:
  /// @throws Refusal  the rank or the place is not usable
  Joining(const Place& place, Position position, int device);
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;
  ~Joining() { release_place(place_); }

  const std::shared_ptr<Member>& member() const { return member_; }
  /// Whether all ranks have come.
  /// @throws Refusal  they do not go together: another number of ranks, or one GPU for two of them
  bool is_complete();

 private:
  Place place_;
  std::shared_ptr<Member> member_;
};

/// The steps of ncclCommSplit, in which this rank has come to the meeting of its parent's ranks.
/// @param color    ranks with the same color form a communicator; NCCL_SPLIT_NOCOLOR: none
/// @param key      orders them; equal ones by their rank in the parent
/// @param part     receives the new communicator with the last step
/// @param options  of the new communicator
FakeCommunicator::ProgressTest splitting(FakeCommunicator& parent, int color, int key, ncclComm_t* part,
                                         const FakeCommunicator::CommOptions& options);

}  // namespace lockstep::fake_gpu::nccl
