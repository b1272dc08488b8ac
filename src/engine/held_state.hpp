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

#include "state_names.hpp"
#include "tensor_arrays.hpp"

// What lies like the parameters, and of which each rank may hold a part: optimizer state, averages.
namespace lockstep::engine {

/// What this rank holds of one parameter's state: elements [begin, begin + bytes) of it, laid out like the parameter.
struct HeldState {
  std::string at;               ///< its place in an archive
  const at::Tensor* parameter;  ///< whose shape, strides and type it has
  std::int64_t begin;
  std::span<std::byte> bytes;
  const std::byte* values;  ///< where the same elements of the parameter itself are

  bool is_whole() const { return bytes.size() == parameter->nbytes(); }
  /// Only where it is whole.
  at::Tensor view() const { return parallel::view_of(bytes.data(), *parameter, nullptr); }
  /// The same part of stored values.
  at::Tensor part_of(const checkpoints::Array& saved) const {
    const at::Tensor all = at::empty_strided(parameter->sizes(), parameter->strides(),
                                             at::TensorOptions().dtype(parallel::scalar_type_of(saved.dtype)));
    all.copy_(tensor_over(saved));
    const auto count = static_cast<std::int64_t>(bytes.size() / parameter->element_size());
    return all.as_strided({count}, {1}, begin);
  }
};

/// Visits what this rank holds of every parameter's state.
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
      visit(HeldState{.at = path(group, segment.name),
                      .parameter = &store.parameter(store.index_of(b, s)).tensor,
                      .begin = begin,
                      .bytes = state.subspan(first, static_cast<std::size_t>(end - begin) * element),
                      .values = block.parameters + first});
    }
  }
}

}  // namespace lockstep::engine
