// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sync/sparse_gradients.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <functional>
#include <span>
#include <vector>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

std::string bytes_as_text(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.cpu().contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

at::Tensor tensor_of(const std::string& text, at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::from_blob(const_cast<char*>(text.data()), shape, options.device(at::kCPU)).clone().to(options.device());
}

/// Texts of all ranks, in their order.
using Gather = std::function<std::vector<std::string>(const std::string& mine)>;

void average(const at::Tensor& parameter, const Gather& all_gather, int divisor) {
  const torch::NoGradGuard no_grad;
  at::Tensor& gradient = parameter.mutable_grad();
  const at::Tensor mine = gradient.defined() ? gradient.coalesce() : at::Tensor();
  const auto indices = all_gather(mine.defined() ? bytes_as_text(mine.indices()) : std::string());
  const auto values = all_gather(mine.defined() ? bytes_as_text(mine.values()) : std::string());
  const std::int64_t row_bytes =
      static_cast<std::int64_t>(parameter.nbytes()) / std::max<std::int64_t>(1, parameter.size(0));
  std::vector<at::Tensor> all_indices;
  std::vector<at::Tensor> all_values;
  for (std::size_t rank = 0; rank < indices.size(); ++rank) {
    if (indices[rank].empty()) continue;
    const std::int64_t rows = static_cast<std::int64_t>(values[rank].size()) / row_bytes;
    std::vector<std::int64_t> shape = parameter.sizes().vec();
    shape[0] = rows;
    all_indices.push_back(
        tensor_of(indices[rank], {1, rows}, parameter.options().requires_grad(false).dtype(at::kLong)));
    all_values.push_back(tensor_of(values[rank], shape, parameter.options().requires_grad(false)));
  }
  if (all_indices.empty()) return;
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(all_indices, 1), at::cat(all_values, 0), parameter.sizes(),
                                               parameter.options().requires_grad(false).layout(at::kSparse));
  gradient = sum.coalesce().div(static_cast<double>(divisor));
}

}  // namespace

void require_sparse(const at::Tensor& gradient, const std::string& parameter) {
  if (!gradient.defined() || gradient.is_sparse()) return;
  throw ConfigError("ddp: the gradient of " + parameter + " is dense, expected sparse");
}

void average_sparse(const at::Tensor& parameter, const mpi::Communicator& world, int divisor) {
  average(
      parameter, [&](const std::string& mine) { return world.all_gather(mine); }, divisor);
}

void average_sparse(const at::Tensor& parameter, mpi::Collectives& collectives, int divisor) {
  const auto all_gather = [&](const std::string& mine) {
    std::vector<std::string> texts;
    for (const std::vector<std::byte>& bytes : collectives.all_gather_any(std::as_bytes(std::span(mine)))) {
      texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return texts;
  };
  average(parameter, all_gather, divisor);
}

}  // namespace lockstep::parallel
