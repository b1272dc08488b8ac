// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// The messages that hooks send instead of a bucket, in memory where reductions are fastest, kept from step to step.
class MessagePool {
 public:
  /// @param collectives  outlives the pool
  explicit MessagePool(mpi::Collectives& collectives) : collectives_(&collectives) {}

  /// [count] elements that hold anything, and are overwritten when the slot is taken again. Collective: the same slots
  /// in the same order on all ranks.
  /// @param options  type and device
  at::Tensor take(std::size_t slot, std::int64_t count, const at::TensorOptions& options);

  mpi::Collectives& collectives() const noexcept { return *collectives_; }

 private:
  mpi::Collectives* collectives_;
  std::vector<mpi::BucketMemory> memory_;  // memory of each slot
};

}  // namespace lockstep::parallel
