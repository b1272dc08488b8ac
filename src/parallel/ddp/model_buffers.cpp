// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/model_buffers.hpp"

#include <torch/types.h>

#include <algorithm>

#include "parallel/sync/tensor_collectives.hpp"

namespace lockstep::parallel {

std::vector<at::Tensor> ModelBuffers::all() const {
  std::vector<at::Tensor> buffers;
  for (const auto& item : model_->named_buffers()) {
    if (std::find(ignored_.begin(), ignored_.end(), item.key()) == ignored_.end()) buffers.push_back(item.value());
  }
  return buffers;
}

void ModelBuffers::broadcast_from(int root) const {
  for (const at::Tensor& buffer : all()) broadcast(buffer, *collectives_, root);
}

void ModelBuffers::average() const {
  if (collectives_->world_size() == 1) return;
  for (const at::Tensor& buffer : all()) {
    if (at::isFloatingType(buffer.scalar_type())) {
      all_reduce(buffer, *collectives_, mpi::ReduceOp::average);
    } else {
      broadcast(buffer, *collectives_, 0);
    }
  }
}

}  // namespace lockstep::parallel
