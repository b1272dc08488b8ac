// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/comm_hooks/message_pool.hpp"

#include <torch/types.h>

#include <algorithm>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

at::Tensor MessagePool::take(std::size_t slot, std::int64_t count, const at::TensorOptions& options) {
  memory_.resize(std::max(memory_.size(), slot + 1));
  mpi::BucketMemory& memory = memory_[slot];
  const std::size_t bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
  if (memory.bytes.size() < bytes) memory = collectives_->allocate_bucket(bytes);
  return vector_over(memory.bytes.data(), count, c10::typeMetaToScalarType(options.dtype()), options.device(),
                     memory.owner);
}

}  // namespace lockstep::parallel
