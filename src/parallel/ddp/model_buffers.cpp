// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/model_buffers.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstdint>

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
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> averaged, rows;
  for (const at::Tensor& buffer : all()) {
    if (at::isFloatingType(buffer.scalar_type())) {
      averaged.push_back(buffer);
      rows.push_back(buffer.detach().to(at::kDouble).reshape({-1}));
    } else {
      broadcast(buffer, *collectives_, 0);
    }
  }
  if (averaged.empty()) return;
  const at::Tensor values = at::cat(rows);
  all_reduce(values, *collectives_, mpi::ReduceOp::average);
  std::int64_t at = 0;
  for (const at::Tensor& buffer : averaged) {
    // A backward that has saved the buffer goes on with its new values, as after a collective operation in place.
    buffer.variable_data().copy_(values.narrow(0, at, buffer.numel()).view(buffer.sizes()));
    at += buffer.numel();
  }
}

}  // namespace lockstep::parallel
