// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

/// The messages that hooks send instead of a bucket, in memory where reductions are fastest, kept from step to step.
class MessagePool {
 public:
  /// @param collectives  outlives the pool
  explicit MessagePool(mpi::Collectives& collectives) : collectives_(&collectives) {}

  /// [count] elements that hold anything, and are overwritten when the slot is taken again. Collective: the same slots
  /// in the same order on all ranks.
  /// @param options  type and device
  at::Tensor take(std::size_t slot, std::int64_t count, const at::TensorOptions& options) {
    memory_.resize(std::max(memory_.size(), slot + 1));
    mpi::BucketMemory& memory = memory_[slot];
    const std::size_t bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
    if (memory.bytes.size() < bytes) memory = collectives_->allocate_bucket(bytes);
    return vector_over(memory.bytes.data(), count, c10::typeMetaToScalarType(options.dtype()), options.device(),
                       memory.owner);
  }

  mpi::Collectives& collectives() const noexcept { return *collectives_; }

 private:
  mpi::Collectives* collectives_;
  std::vector<mpi::BucketMemory> memory_;  // memory of each slot
};

}  // namespace lockstep::parallel
