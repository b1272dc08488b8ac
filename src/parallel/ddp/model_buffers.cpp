// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/model_buffers.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

using Tensors = std::vector<at::Tensor>;

/// The order is the same on every rank.
std::map<std::pair<at::DeviceType, at::ScalarType>, Tensors> by_type(const Tensors& buffers) {
  std::map<std::pair<at::DeviceType, at::ScalarType>, Tensors> lists;
  for (const at::Tensor& buffer : buffers) {
    lists[{buffer.device().type(), buffer.scalar_type()}].push_back(buffer);
  }
  return lists;
}

/// The memory of buffers. A backward that has saved a buffer goes on with its new values, as after a collective
/// operation in place.
Tensors memory_of(const Tensors& buffers) {
  Tensors memory;
  for (const at::Tensor& buffer : buffers) memory.push_back(buffer.variable_data());
  return memory;
}

/// The parts of a flat tensor in which the values of buffers are, one behind the other.
Tensors parts_of(const at::Tensor& flat, const Tensors& buffers) {
  Tensors parts;
  std::int64_t begin = 0;
  for (const at::Tensor& buffer : buffers) {
    parts.push_back(is_flat(buffer) ? flat.as_strided(buffer.sizes(), buffer.strides(), begin)
                                    : flat.narrow(0, begin, buffer.numel()).view(buffer.sizes()));
    begin += buffer.numel();
  }
  return parts;
}

/// Replaces the values of buffers of one type.
/// @param change  changes their values, which it gets in a flat tensor
template <class Change>
void change_as_one(const Tensors& buffers, at::ScalarType type, const Change& change) {
  std::int64_t count = 0;
  for (const at::Tensor& buffer : buffers) count += buffer.numel();
  const at::Tensor flat = at::empty({count}, buffers.front().options().dtype(type).requires_grad(false));
  const Tensors parts = parts_of(flat, buffers);
  const Tensors memory = memory_of(buffers);
  at::_foreach_copy_(parts, memory);
  change(flat);
  at::_foreach_copy_(memory, parts);
}

}  // namespace

Tensors ModelBuffers::all() const {
  Tensors buffers;
  for (const auto& item : model_->named_buffers()) {
    if (std::find(ignored_.begin(), ignored_.end(), item.key()) == ignored_.end()) buffers.push_back(item.value());
  }
  return buffers;
}

void ModelBuffers::broadcast_from(int root) const {
  if (collectives_->world_size() == 1) return;
  for (const auto& [type, buffers] : by_type(all())) broadcast_alike(buffers, root);
}

void ModelBuffers::broadcast_alike(const Tensors& buffers, int root) const {
  if (buffers.size() == 1) return broadcast(buffers.front(), *collectives_, root);
  const torch::NoGradGuard no_grad;
  change_as_one(buffers, buffers.front().scalar_type(),
                [&](const at::Tensor& flat) { broadcast(flat, *collectives_, root); });
}

void ModelBuffers::average() const {
  if (collectives_->world_size() == 1) return;
  const torch::NoGradGuard no_grad;
  for (const auto& [type, buffers] : by_type(all())) {
    if (!at::isFloatingType(buffers.front().scalar_type())) {
      broadcast_alike(buffers, 0);
      continue;
    }
    change_as_one(buffers, at::kDouble,
                  [&](const at::Tensor& flat) { all_reduce(flat, *collectives_, mpi::ReduceOp::average); });
  }
}

}  // namespace lockstep::parallel
