// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/local_state.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <cstring>
#include <vector>

#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

std::int64_t count_of(const LocalState& local) {
  if (local.is_whole()) return local.tensor.numel();
  return static_cast<std::int64_t>(local.bytes.size() / local.tensor.element_size());
}

/// Whether the live values are those that were stored.
bool is_restored(const LocalState& local, const Array& saved) {
  const at::Tensor stored = local.is_whole() ? tensor_over(saved) : part_of(local, saved);
  const Array now = array_of(local.is_whole() ? local.tensor : elements_of(local), local.path);
  const bool is_same_memory = now.bytes.data() == saved.bytes.data();  // then its digest was checked there
  return is_same_memory || now.bytes.empty() ||
         std::memcmp(now.bytes.data(), stored.const_data_ptr(), now.bytes.size()) == 0;
}

}  // namespace

at::Tensor elements_of(const LocalState& local) {
  if (local.is_whole()) return local.tensor.as_strided({count_of(local)}, {1});
  return at::from_blob(
      local.bytes.data(), {count_of(local)}, [](void*) {}, local.tensor.options().device(local.device), local.device);
}

at::Tensor part_of(const LocalState& local, const Array& saved) {
  const at::Tensor& like = local.tensor;
  const at::Tensor all = at::empty_strided(like.sizes(), like.strides(), like.options().device(at::kCPU));
  all.copy_(tensor_over(saved));
  return all.as_strided({count_of(local)}, {1}, local.begin);
}

const Array* fitting(const Archive& archive, const std::string& path, const at::Tensor& live) {
  if (!archive.has(path) || !fits(archive.array(path), live)) return nullptr;
  return &archive.array(path);
}

void copy_to(const at::Tensor& live, const Array& saved) {
  if (live.const_data_ptr() != saved.bytes.data()) live.copy_(tensor_over(saved));
}

void load(const Archive& archive, const LocalState& local) {
  const Array* const saved = fitting(archive, local.path, local.tensor);
  if (saved == nullptr) return;
  if (local.is_whole()) return copy_to(local.tensor, *saved);
  elements_of(local).copy_(part_of(local, *saved));
}

void verify(const Archive& archive, const LocalState& local) {
  const Array* const saved = fitting(archive, local.path, local.tensor);
  if (saved == nullptr || is_restored(local, *saved)) return;
  throw CheckpointError(archive.origin(), local.path,
                        "the restored state differs from the checkpoint; check the memory of this host");
}

void capture_block(const StateWriter& writer, const std::string& group, parallel::ParameterStore& store,
                   std::size_t block, std::span<std::byte> of_block, DType dtype) {
  if (!writer.is_writer() && store.shards() == nullptr) return;
  const std::vector<at::Tensor> values = store.segments_of(block, of_block, dtype);
  for (std::size_t s = 0; s < values.size(); ++s) {
    writer.put(path(group, store.blocks()[block].segments[s].name), values[s]);
  }
}

std::optional<LocalState> local_state(const parallel::ParameterStore& store, const std::string& group,
                                      std::size_t block, std::size_t segment, std::span<std::byte> of_block,
                                      DType dtype) {
  const optim::Segment& part = store.blocks()[block].segments[segment];
  const bool is_sharded = store.shards() != nullptr;
  const std::int64_t begin = is_sharded ? part.own_begin : 0;
  const std::int64_t end = is_sharded ? part.own_end : part.count;
  if (begin >= end) return std::nullopt;
  const std::size_t element = size_of(dtype);
  const std::span<std::byte> bytes = of_block.subspan(static_cast<std::size_t>(part.offset + begin) * element,
                                                      static_cast<std::size_t>(end - begin) * element);
  const at::Tensor& parameter = store.parameter(store.index_of(block, segment)).tensor;
  const at::TensorOptions options = parameter.options().dtype(parallel::scalar_type_of(dtype)).requires_grad(false);
  at::Tensor tensor = at::empty_strided(parameter.sizes(), parameter.strides(), options.device(at::kMeta));
  if (end - begin == part.count) {
    tensor = at::from_blob(
        bytes.data(), parameter.sizes(), parameter.strides(), [](void*) {}, options.device(store.device()),
        store.device());
  }
  return LocalState{.path = path(group, part.name),
                    .tensor = std::move(tensor),
                    .begin = begin,
                    .bytes = bytes,
                    .device = store.device()};
}

}  // namespace lockstep::engine
