// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

namespace lockstep::parallel {

CommHook all_reduce_hook(mpi::Collectives& collectives) {
  return [&collectives](const GradBucket& bucket) -> Completion {
    const at::Tensor buffer = bucket.buffer;
    const mpi::Ticket ticket =
        collectives.start_all_reduce(buffer.mutable_data_ptr(), static_cast<std::size_t>(buffer.numel()),
                                     dtype_of(buffer, "a bucket"), mpi::ReduceOp::average);
    return [&collectives, buffer, ticket] {
      collectives.wait(ticket);
      return buffer;
    };
  };
}

CommHook noop_hook() {
  return [](const GradBucket& bucket) -> Completion { return [buffer = bucket.buffer] { return buffer; }; };
}

}  // namespace lockstep::parallel
