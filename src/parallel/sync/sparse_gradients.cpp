// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sync/sparse_gradients.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// The memory of the tensors of all ranks; empty for a rank without one.
std::vector<std::vector<std::byte>> gather_bytes(const at::Tensor& mine, mpi::Collectives& collectives) {
  if (!mine.defined()) return collectives.all_gather_any({});
  return collectives.all_gather_any(bytes_of(mine.cpu().contiguous()));
}

at::Tensor tensor_of(std::vector<std::byte>& bytes, at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::from_blob(bytes.data(), shape, options.device(at::kCPU)).clone().to(options.device());
}

}  // namespace

void require_sparse(const at::Tensor& gradient, const std::string& parameter) {
  if (!gradient.defined() || gradient.is_sparse()) return;
  throw ConfigError("ddp: the gradient of " + parameter + " is dense, expected sparse");
}

void average_sparse(const at::Tensor& parameter, mpi::Collectives& collectives, int divisor) {
  const torch::NoGradGuard no_grad;
  at::Tensor& gradient = parameter.mutable_grad();
  const at::Tensor mine = gradient.defined() ? gradient.coalesce() : at::Tensor();
  auto indices = gather_bytes(mine.defined() ? mine.indices() : at::Tensor(), collectives);
  auto values = gather_bytes(mine.defined() ? mine.values() : at::Tensor(), collectives);
  const std::int64_t row_bytes =
      static_cast<std::int64_t>(parameter.nbytes()) / std::max<std::int64_t>(1, parameter.size(0));
  const at::TensorOptions options = parameter.options().requires_grad(false);
  std::vector<at::Tensor> all_indices;
  std::vector<at::Tensor> all_values;
  for (std::size_t rank = 0; rank < indices.size(); ++rank) {
    if (indices[rank].empty()) continue;
    std::vector<std::int64_t> shape = parameter.sizes().vec();
    shape[0] = static_cast<std::int64_t>(values[rank].size()) / row_bytes;
    all_indices.push_back(tensor_of(indices[rank], {1, shape[0]}, options.dtype(at::kLong)));
    all_values.push_back(tensor_of(values[rank], shape, options));
  }
  if (all_indices.empty()) return;
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(all_indices, 1), at::cat(all_values, 0), parameter.sizes(),
                                               options.layout(at::kSparse));
  gradient = sum.coalesce().div(static_cast<double>(divisor));
}

}  // namespace lockstep::parallel
