// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/parallel/parameter_store.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "state_names.hpp"
#include "tensor_arrays.hpp"

// What lies like the parameters, and of which each rank may hold a part: optimizer state, averages.
namespace lockstep::engine {

/// What this rank holds of one array that belongs to a parameter: elements [begin, begin + bytes) of it.
struct HeldState {
  std::string at;   ///< its place in an archive
  at::Tensor like;  ///< the array itself where all of it is held; else of its shape, strides and type, without values
  std::int64_t begin = 0;
  std::span<std::byte> bytes;
  const std::byte* values = nullptr;  ///< where the same elements of the parameter are, for what lies like it
  at::Device device = at::kCPU;       ///< whose memory both are

  bool is_whole() const { return !like.is_meta(); }
  /// As many elements as are held, over memory of the device.
  at::Tensor over(const std::byte* memory) const {
    return at::from_blob(
        const_cast<std::byte*>(memory), {static_cast<std::int64_t>(bytes.size() / like.element_size())}, [](void*) {},
        like.options().device(device), device);
  }
  /// The same part of stored values.
  at::Tensor part_of(const checkpoints::Array& saved) const {
    const at::Tensor all = at::empty_strided(like.sizes(), like.strides(), like.options().device(at::kCPU));
    all.copy_(tensor_over(saved));
    return all.as_strided({static_cast<std::int64_t>(bytes.size() / like.element_size())}, {1}, begin);
  }
};

/// The stored array, when it is there and fits; else null.
const checkpoints::Array* fitting(const checkpoints::Archive& archive, const std::string& at, const at::Tensor& live);
/// Unless it was read straight to there.
void copy_to(const at::Tensor& live, const checkpoints::Array& saved);
/// Takes the stored values, where they fit.
void load_held(const checkpoints::Archive& archive, const HeldState& held);

/// What lies like the parameters of one block: on ranks that write, an array for each. Collective where sharded.
/// @param dtype  of what lies there
void capture_block(checkpoints::Archive& archive, const std::string& group, parallel::ParameterStore& store,
                   std::size_t block, std::span<std::byte> of_block, DType dtype, bool is_writer);

/// Visits what this rank holds of arrays that lie like the parameters.
/// @param state_of  block -> its state, as FlatParameters::allocate_state gave it
void for_each_held(const parallel::ParameterStore& store, const std::string& group, const auto& state_of,
                   const auto& visit) {
  for (std::size_t b = 0; b < store.blocks().size(); ++b) {
    const optim::Block& block = store.blocks()[b];
    const std::size_t element = size_of(block.dtype);
    const std::span<std::byte> state = state_of(b);
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const optim::Segment& segment = block.segments[s];
      const bool is_sharded = store.shards() != nullptr;
      const std::int64_t begin = is_sharded ? segment.own_begin : 0;
      const std::int64_t end = is_sharded ? segment.own_end : segment.count;
      if (begin >= end) continue;
      const std::size_t first = static_cast<std::size_t>(segment.offset + begin) * element;
      const std::span<std::byte> held = state.subspan(first, static_cast<std::size_t>(end - begin) * element);
      const at::Tensor& parameter = store.parameter(store.index_of(b, s)).tensor;
      const at::TensorOptions options = parameter.options().requires_grad(false);
      at::Tensor like = at::empty_strided(parameter.sizes(), parameter.strides(), options.device(at::kMeta));
      if (end - begin == segment.count) {
        like = at::from_blob(
            held.data(), parameter.sizes(), parameter.strides(), [](void*) {}, options.device(store.device()),
            store.device());
      }
      visit(HeldState{.at = path(group, segment.name),
                      .like = std::move(like),
                      .begin = begin,
                      .bytes = held,
                      .values = block.parameters + first,
                      .device = store.device()});
    }
  }
}

}  // namespace lockstep::engine
