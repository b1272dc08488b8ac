// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/lane_buffers.hpp"

#include <torch/types.h>

#include <cstdint>
#include <utility>

namespace lockstep::parallel {

NodeRow::NodeRow(DType dtype, std::int64_t count, int nodes, mpi::Collectives& collectives)
    : dtype_(dtype), count_(static_cast<std::size_t>(count)) {
  const std::size_t line = 64 / size_of(dtype);
  stride_ = (count_ + line - 1) / line * line;
  memory_ = collectives.allocate_bucket(stride_ * static_cast<std::size_t>(nodes) * size_of(dtype));
}

void NodeRow::fold(mpi::LaneTree::Step step) const {
  mpi::fold_lane(step, memory_.bytes.data(), count_, stride_, dtype_);
}

mpi::Ticket NodeRow::start(mpi::Collectives& collectives, const mpi::LaneTree& tree, bool by_ranges) const {
  void* const nodes = memory_.bytes.data();
  const auto start = by_ranges ? mpi::start_lane_ranges : mpi::start_lane_reduce;
  return start(collectives, nodes, count_, stride_, dtype_, mpi::ReduceOp::average, tree);
}

namespace {

bool is_averaged(const at::Tensor& buffer) {
  return buffer.scalar_type() == at::kFloat || buffer.scalar_type() == at::kDouble;
}

std::int64_t count_averaged(const std::vector<at::Tensor>& buffers) {
  std::int64_t count = 0;
  for (const at::Tensor& buffer : buffers) count += is_averaged(buffer) ? buffer.numel() : 0;
  return count;
}

/// Calls `visit(buffer, its values in a node)` for every buffer that is averaged.
template <class Visit>
void for_each_averaged(const std::vector<at::Tensor>& buffers, const NodeRow& row, int node, const Visit& visit) {
  std::int64_t position = 0;
  for (const at::Tensor& buffer : buffers) {
    if (!is_averaged(buffer)) continue;
    visit(buffer, at::from_blob(row.at(node, position), buffer.sizes(), at::kDouble));
    position += buffer.numel();
  }
}

}  // namespace

LaneBuffers::LaneBuffers(std::function<std::vector<at::Tensor>()> buffers, int nodes, mpi::Collectives& collectives)
    : buffers_(std::move(buffers)), sums_(DType::float64, count_averaged(buffers_()), nodes, collectives) {}

void LaneBuffers::keep() {
  live_ = buffers_();
  kept_.clear();
  for (const at::Tensor& buffer : live_) kept_.push_back(buffer.detach().clone());
}

void LaneBuffers::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < live_.size(); ++i) live_[i].copy_(kept_[i]);
}

void LaneBuffers::collect(mpi::LaneTree::Step step) const {
  const torch::NoGradGuard no_grad;
  for_each_averaged(live_, sums_, step.buffer,
                    [](const at::Tensor& buffer, const at::Tensor& values) { values.copy_(buffer); });
  sums_.fold(step);
}

mpi::Ticket LaneBuffers::start(mpi::Collectives& collectives, const mpi::LaneTree& tree) const {
  return sums_.start(collectives, tree, /*by_ranges=*/false);
}

void LaneBuffers::assign() const {
  const torch::NoGradGuard no_grad;
  for_each_averaged(live_, sums_, 0, [](const at::Tensor& buffer, const at::Tensor& values) { buffer.copy_(values); });
}

}  // namespace lockstep::parallel
