// SPDX-License-Identifier: BSD-3-Clause
#include "held_state.hpp"

#include <vector>

#include "differences.hpp"

namespace lockstep::engine {

using checkpoints::Archive;
using checkpoints::Array;

const Array* fitting(const Archive& archive, const std::string& at, const at::Tensor& live) {
  if (!archive.has(at) || !fits(archive.array(at), live)) return nullptr;
  return &archive.array(at);
}

void copy_to(const at::Tensor& live, const Array& saved) {
  if (live.const_data_ptr() != saved.bytes.data()) live.copy_(tensor_over(saved));
}

void load_held(const Archive& archive, const HeldState& held) {
  const Array* const saved = fitting(archive, held.at, held.like);
  if (saved == nullptr) return;
  if (held.is_whole()) return copy_to(held.like, *saved);
  held.over(held.bytes.data()).copy_(held.part_of(*saved));
}

void capture_block(Archive& archive, const std::string& group, parallel::ParameterStore& store, std::size_t block,
                   std::span<std::byte> of_block, DType dtype, bool is_writer) {
  if (!is_writer && store.shards() == nullptr) return;
  const std::vector<at::Tensor> values = store.segments_of(block, of_block, dtype);
  for (std::size_t s = 0; is_writer && s < values.size(); ++s) {
    const std::string& name = store.blocks()[block].segments[s].name;
    archive.put(path(group, name), array_of(values[s], name));
  }
}

}  // namespace lockstep::engine
